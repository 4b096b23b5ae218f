"""The clock of a window: knows steps and seconds, nothing of devices or backends, which are passed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

Clock = Callable[[], float]
Sync = Callable[[], None]


@dataclass(frozen=True)
class Timed:
    """One window on one rank: `seconds` between two device syncs, `step_seconds` between the steps' own clock readings."""

    seconds: float
    step_seconds: list[float]


def time_steps(step: Callable[[], None], steps: int, clock: Clock, sync: Sync) -> Timed:
    """Run `step` `steps` times. The device is synced at the two edges only, so timing never breaks the overlap it measures."""
    sync()
    marks = [clock()]
    for _ in range(steps):
        step()
        marks.append(clock())
    sync()
    end = clock()
    return Timed(end - marks[0], [after - before for before, after in pairwise(marks)])
