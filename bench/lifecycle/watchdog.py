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
_OTHERS_REPORT_S = 1.5  # how long the first whose patience ends waits for the words of the others
_TURN_S = 0.5  # the lowest rank speaks for all; the next does if it has not
_MOST_TURNS = 8


def on_interrupt(told: Callable[[int], object]) -> None:
    """Call `told(signal number)`, which ends the process, on Ctrl-C and SIGTERM.

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
                told(number)

    threading.Thread(target=watch, name="interrupts", daemon=True).start()


class Watchdog:
    """Watches `pulse` and calls `ending`, which does not return.

    Once a second it reads three numbers and the parent's process id, and, where a shell stands
    before the launcher, /proc. Time in which the whole process is stopped (Ctrl-Z) does not count.
    """

    def __init__(
        self, pulse: Pulse, board: Board, ending: Ending, rank: int, world_size: int, limit_s: float
    ) -> None:
        self._pulse, self._board, self._ending = pulse, board, ending
        self._rank, self._world_size, self._limit_s = rank, world_size, limit_s

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> NoReturn:
        tick_s = min(_TICK_S, self._limit_s / 4)
        last, silent_s, posted, before = self._pulse.beat(), 0.0, False, time.monotonic()
        while True:
            time.sleep(tick_s)
            now = time.monotonic()
            silent_s, before = silent_s + min(now - before, 2 * tick_s), now
            if self._ending.is_orphan():
                self._ending.orphaned()
            beat = self._pulse.beat()
            if beat != last:
                last, silent_s = beat, 0.0
                if posted:
                    self._board.withdraw()
                    posted = False
            elif silent_s >= self._limit_s:
                self._end(beat, silent_s)
            elif silent_s >= self._limit_s / 2 and self._world_size > 1:
                # in good time: the first rank at its limit finds the words of those a little behind
                if not posted:
                    self._board.post(self._report(beat, silent_s, final=False))
                    posted = True
                if any(report.final for report in self._board.reports(self._limit_s).values()):
                    self._end(beat, silent_s)

    def _end(self, beat: Beat, silent_s: float) -> NoReturn:
        report = self._report(beat, silent_s, final=True)
        self._board.post(report)
        time.sleep(_OTHERS_REPORT_S if self._world_size > 1 else 0)
        reports = {self._rank: report, **self._board.reports(self._limit_s)}
        time.sleep(_TURN_S * min(self._rank, _MOST_TURNS))
        self._ending.stalled(reports)

    def _report(self, beat: Beat, silent_s: float, final: bool) -> Report:
        stack = frames(sys._current_frames().get(threading.main_thread().ident or 0))
        helpers = [f"loading process {c.pid} {state(c.pid)}" for c in loading_processes()]
        doing, waits = activity(beat, stack, self._world_size, helpers)
        return Report(rank=self._rank, doing=doing, waits=waits, silent_s=silent_s, final=final)
