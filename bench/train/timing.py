"""The clock of a window: knows steps and seconds, and is given the device's stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise


class Stopwatch:
    """How a device tells the time; this is the host's, whose work is done when a step returns."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._marks: list[float] = []

    def now(self) -> float:
        """Read the clock, in seconds, once the device has done all that it was given."""
        return self._clock()

    def mark(self) -> None:
        """Note the end of a step; never waits for the device, whose overlap is measured."""
        self._marks.append(self._clock())

    def remark(self) -> None:
        """Move the last mark to this moment; never waits either."""
        self._marks[-1] = self._clock()

    def times(self) -> list[float]:
        """Return the marks since the last call, in seconds of a clock; call after `now`."""
        marks, self._marks = self._marks, []
        return marks

    def laps(self) -> list[float]:
        """Return the seconds between the marks since the last call; call after `now`."""
        return [after - before for before, after in pairwise(self.times())]


@dataclass(frozen=True)
class TimedSteps:
    """A rank's window: `seconds` between two device syncs, `step_seconds` between steps' marks."""

    seconds: float
    step_seconds: list[float]


def time_steps(step: Callable[[], object], steps: int, watch: Stopwatch) -> TimedSteps:
    """Run `step` `steps` times. The device is synced at the two edges only."""
    start = watch.now()
    watch.mark()
    for _ in range(steps):
        step()
        watch.mark()
    seconds = watch.now() - start
    return TimedSteps(seconds, watch.laps())
