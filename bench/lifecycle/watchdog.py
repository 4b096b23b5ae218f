"""A thread on every rank that ends a run that has stalled, or whose launcher is gone.

It wakes once a second, reads three numbers and the parent's process id, and touches no file but
the kernel's /proc, and that only where a shell stands between the rank and its launcher. Time in
which the whole process is stopped (Ctrl-Z) does not count.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import NoReturn

from bench.lifecycle.ending import Ending
from bench.lifecycle.peers import loading_processes, state
from bench.lifecycle.pulse import Beat, Pulse
from bench.lifecycle.stall import Board, Report, activity, frames

_TICK_S = 1.0
_OTHERS_REPORT_S = 1.5  # how long the first whose patience ends waits for the words of the others
_TURN_S = 0.5  # the lowest rank speaks for all; the next does if it has not
_MOST_TURNS = 8


class Watchdog:
    """Watches `pulse` and calls `ending`, which does not return."""

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
            silent_s += min(now - before, 2 * tick_s)
            before = now
            if self._ending.is_orphan():
                self._ending.orphaned()
            beat = self._pulse.beat()
            if beat != last:
                last, silent_s = beat, 0.0
                if posted:
                    self._board.withdraw()
                    posted = False
            elif (
                silent_s >= self._limit_s / 2 and self._world_size > 1 and silent_s < self._limit_s
            ):
                # in good time, so that the first rank at its limit finds the words of those a
                # little behind
                if not posted:
                    self._board.post(self._report(beat, silent_s, final=False))
                    posted = True
                if any(report.final for report in self._board.reports(self._limit_s).values()):
                    self._end(beat, silent_s)
            if silent_s >= self._limit_s:
                self._end(beat, silent_s)

    def _end(self, beat: Beat, silent_s: float) -> NoReturn:
        report = self._report(beat, silent_s, final=True)
        self._board.post(report)
        time.sleep(_OTHERS_REPORT_S if self._world_size > 1 else 0)
        reports = {self._rank: report, **self._board.reports(self._limit_s)}
        time.sleep(_TURN_S * min(self._rank, _MOST_TURNS))
        self._ending.stalled(reports)

    def _report(self, beat: Beat, silent_s: float, final: bool) -> Report:
        """What this rank is doing now."""
        stack = frames(sys._current_frames().get(threading.main_thread().ident or 0))
        helpers = [
            f"loading process {child.pid} {state(child.pid)}" for child in loading_processes()
        ]
        doing, waits = activity(beat, stack, self._world_size, helpers)
        return Report(
            rank=self._rank,
            doing=doing,
            waits=waits,
            silent_s=silent_s,
            final=final,
            written_unix_s=time.time(),
        )
