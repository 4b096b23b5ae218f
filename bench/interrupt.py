"""Ctrl-C and SIGTERM end a run in a recorded state, even while the main thread is stuck inside a collective.

Python runs signal handlers on the main thread only, which may be waiting in C for a rank that is gone. The wake-up pipe is
written by the C-level handler at once, and a thread of our own reads it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_interrupt(record: Callable[[str], None]) -> None:
    """Call `record(signal name)` when a signal arrives, then leave at once with the shell's code for it, 128 + number."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)  # a handler must exist for the wake-up pipe to be written
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read_end, record), name="interrupts", daemon=True).start()


def _watch(read_end: int, record: Callable[[str], None]) -> None:
    while number := os.read(read_end, 1)[0]:
        if number in SIGNALS:
            try:
                name = signal.Signals(number).name
                record(name)
                show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar has hidden it
                print(f"{show_cursor}interrupted by {name}", file=sys.stderr, flush=True)
            finally:  # a full disk or a closed terminal must not keep the process alive
                os._exit(128 + number)
