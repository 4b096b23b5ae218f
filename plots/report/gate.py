"""Whether a later study holds against an earlier one, point by point: for a check in CI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.study.definition import Point
from bench.study.points import NotCompared, describe
from bench.study.stats import MIN_BLOCKS
from plots.analyse import coverage
from plots.analyse.across import Change
from plots.analyse.study import Analysis
from plots.report.format import interval, ratio

State = Literal["holds", "slower", "not settled", "missing", "not comparable", "new"]
EXIT_CODES = {"holds": 0, "slower": 1, "cannot tell": 3}  # 2 is bad input, as everywhere


@dataclass(frozen=True)
class Judged:
    """One point of the plan or of either study, and why it is what it is."""

    point: Point
    state: State
    reason: str
    change: Change | None = None

    @property
    def line(self) -> str:
        return f"{self.state}: {describe(self.point)}: {self.reason}"


def verdict(judged: Iterable[Judged]) -> str:
    """Judge all points together; a point that only the later study has says nothing."""
    states = {one.state for one in judged} - {"new"}
    return "slower" if "slower" in states else "holds" if states == {"holds"} else "cannot tell"


def judge(
    before: Analysis,
    after: Analysis,
    changes: Sequence[Change],
    not_compared: Sequence[NotCompared],
    below: float,
) -> Iterator[Judged]:
    """Judge all points of both studies, and planned ones with no usable run in the later study."""
    judged = [_judged(change, below) for change in changes]
    judged += [_not_judged(before, after, one) for one in not_compared]
    judged.sort(key=lambda one: one.point)
    yield from judged
    missing = [one.point for one in judged if one.state == "missing"]
    for study in (before.loaded.study, after.loaded.study):
        plan = coverage.planned(study)
        for gap in coverage.find(study.blocks, plan, after.table):
            if len(gap.missing) == gap.planned and gap.point not in missing:
                missing.append(gap.point)
                yield Judged(gap.point, "missing", "planned, and no usable run of it")


def all_missing(before: Analysis, reason: str) -> list[Judged]:
    """Judge every point as missing, where the later study has no usable run at all."""
    return [Judged(point, "missing", reason) for point in sorted(before.table.blocks)]


def _not_judged(before: Analysis, after: Analysis, one: NotCompared) -> Judged:
    assert one.absent is not None  # of two studies
    if one.absent not in after.table.blocks:
        return Judged(one.absent, "missing", one.reason)
    state: State = "not comparable" if one.absent in before.table.blocks else "new"
    return Judged(one.absent, state, one.reason)


def _judged(change: Change, below: float) -> Judged:
    """Judge a point by its interval alone: a value without one may be chance."""
    text, shown = f"{interval(change.ratio, ratio)} of before", change.ratio.shown
    if shown is None:
        reason = f"{text}, no interval from fewer than {MIN_BLOCKS} launches"
        return Judged(change.point, "not settled", reason, change)
    if shown[1] < below:
        return Judged(change.point, "slower", f"{text}, below {below:g}", change)
    if shown[0] < below:
        return Judged(change.point, "not settled", f"{text}, on both sides of {below:g}", change)
    return Judged(change.point, "holds", f"{text}, not below {below:g}", change)
