"""Ctrl-C and SIGTERM end a run with a record, even while the main thread is in a collective.

Python runs signal handlers on the main thread only, which may be waiting in C for a rank that is
gone. The C-level handler writes to the wake-up pipe at once, and a thread of our own reads it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_interrupt(told: Callable[[int], object]) -> None:
    """Call `told(signal number)`, which ends the process, when a signal arrives."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in SIGNALS:
        # a handler must exist for the wake-up pipe to be written
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read_end, told), name="interrupts", daemon=True).start()


def _watch(read_end: int, told: Callable[[int], object]) -> None:
    # other signals with a handler, such as a child's end, come by here as well
    while number := os.read(read_end, 1)[0]:
        if number in SIGNALS:
            told(number)
