"""Threads on every rank that end a run on a signal, when it stalls, or without its launcher."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from bench.lifecycle.ending import Ending
from bench.lifecycle.peers import loading_processes, state
from bench.lifecycle.pulse import Beat, Pulse
from bench.lifecycle.stall import Board, Report, activity, frames

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

    A rank says what it does from half of the limit on, so that whoever comes to the limit knows it
    of all. The lowest rank that has said so ends the run for all; the others do if it has not by
    twice the limit.
    """

    def __init__(
        self, pulse: Pulse, board: Board, ending: Ending, rank: int, world_size: int, limit_s: float
    ) -> None:
        self._pulse, self._board, self._ending = pulse, board, ending
        self._rank, self._world_size, self._limit_s = rank, world_size, limit_s

    def start(self) -> None:
        if self._rank == 0:
            self._board.clear()  # of a launch of this name that was killed
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> NoReturn:
        tick_s = min(_TICK_S, self._limit_s / 4)
        last, silent_s, before = self._pulse.beat(), 0.0, time.monotonic()
        posted: Report | None = None
        while True:
            time.sleep(tick_s)
            now = time.monotonic()
            silent_s, before = silent_s + min(now - before, 2 * tick_s), now
            if self._ending.is_orphan():
                self._ending.orphaned()
            beat = self._pulse.beat()
            if beat != last:
                last, silent_s = beat, 0.0
                if posted is not None:
                    self._board.withdraw()
                    posted = None
            elif silent_s >= self._limit_s:
                self._judge(self._report(beat), silent_s)
            elif silent_s >= self._limit_s / 2 and (report := self._report(beat)) != posted:
                self._board.post(report)  # again where it does something else by now
                posted = report

    def _judge(self, report: Report, silent_s: float) -> None:
        reports = {**self._board.reports(), self._rank: report}
        if min(reports) == self._rank or silent_s >= 2 * self._limit_s:
            self._ending.stalled(reports, silent_s)

    def _report(self, beat: Beat) -> Report:
        stack = frames(sys._current_frames().get(threading.main_thread().ident or 0))
        helpers = [f"loading process {c.pid} {state(c.pid)}" for c in loading_processes()]
        return Report(self._rank, *activity(beat, stack, self._world_size, helpers))
