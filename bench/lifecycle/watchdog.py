"""Threads on every rank that end a run on a signal, when it stalls, or without its launcher."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from bench.lifecycle.ending import Ending
from bench.lifecycle.pulse import Pulse

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TICK_S = 1.0


def on_interrupt(end: Callable[[int], object]) -> None:
    """Call `end(signal number)`, which ends the process, on Ctrl-C and SIGTERM.

    Python runs signal handlers on the main thread only, which may be waiting in C for a rank that
    is gone. The C-level handler writes to the wake-up pipe at once, and a thread of ours reads it.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)  # without a handler the pipe is not written
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def watch() -> None:
        # other signals with a handler, such as a child's end, come by here as well
        while number := os.read(read_end, 1)[0]:
            if number in SIGNALS:
                end(number)

    threading.Thread(target=watch, name="interrupts", daemon=True).start()


class Watchdog:
    """Watches `pulse` and calls `ending`, which does not return.

    Once a second it reads three numbers and the parent's process id, and, where a shell stands
    before the launcher, /proc. Time in which the whole process is stopped (Ctrl-Z) does not count.
    """

    def __init__(self, pulse: Pulse, ending: Ending, limit_s: float) -> None:
        self._pulse, self._ending, self._limit_s = pulse, ending, limit_s

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> NoReturn:
        tick_s = min(_TICK_S, self._limit_s / 4)
        last, silent_s, before = self._pulse.beat(), 0.0, time.monotonic()
        while True:
            time.sleep(tick_s)
            now = time.monotonic()
            silent_s, before = silent_s + min(now - before, 2 * tick_s), now
            if self._ending.is_orphan():
                self._ending.orphaned()
            beat = self._pulse.beat()
            if beat != last:
                last, silent_s = beat, 0.0
            elif silent_s >= self._limit_s:
                self._ending.stalled(self._pulse.doing(), silent_s)
