"""Two studies of the same points: what changed at each, and whether the later study holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bench.study import comparability, stats
from bench.study.definition import Point
from bench.study.points import describe
from bench.study.stats import Estimate
from plots.analyse.study import Analysis
from plots.report.format import interval, ratio

State = Literal["holds", "slower", "not settled", "missing", "not comparable", "new"]
EXIT_CODES = {"holds": 0, "slower": 1, "cannot tell": 3}  # 2 is bad input, as everywhere
# how long was measured, not what
_DESIGN = ("warmup_steps", "windows", "lead_in_steps", "steps_per_window")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A point of two studies: images per second in each, their ratio, or why there is none."""

    point: Point
    state: State
    reason: str
    before: Estimate | None = None
    after: Estimate | None = None
    ratio: Estimate | None = None

    @property
    def line(self) -> str:
        """The point and its state in words."""
        return f"{self.state}: {describe(self.point)}: {self.reason}"


def verdict(changed: Iterable[Change]) -> str:
    """Judge all points together; a point that only the later study has says nothing."""
    states = {one.state for one in changed} - {"new"}
    return "slower" if "slower" in states else "holds" if states == {"holds"} else "cannot tell"


def changes(
    before: Analysis, after: Analysis | None, below: float, nothing: str = "not in the later study"
) -> Iterator[Change]:
    """Judge each point that either study has or planned: images/s, the later over the earlier.

    The ratio is unpaired, as other days are other launches: Welch's interval on logs of launch means.
    Without a usable run `after` is None, and `nothing` says why.
    """
    studies = [before] if after is None else [before, after]
    known = {point for a in studies for point in a.table.launches}
    for point in sorted(known | {gap.point for a in studies for gap in a.gaps}):
        was = before.table.launches.get(point, {})
        now = after.table.launches.get(point, {}) if after else {}
        if not now:
            reason = nothing if was else "planned, and no usable run of it"
            yield Change(point=point, state="missing", reason=reason)
            continue
        if not was:
            yield Change(point=point, state="new", reason="not in the earlier study")
            continue
        means = (*was.values(), *now.values())
        work = [comparability.work_of(facts) for mean in means for facts in mean.facts]
        if other := comparability.differences(work, _DESIGN):
            reason = f"other work: {'; '.join(other)}"
            yield Change(point=point, state="not comparable", reason=reason)
            continue
        seconds = [[mean.step_seconds for mean in side.values()] for side in (was, now)]
        rates = [stats.geometric_mean([point.global_batch / s for s in side]) for side in seconds]
        change = stats.welch_ratio(numerator=seconds[0], denominator=seconds[1])
        state, reason = _judge(change, below)
        yield Change(
            point=point, state=state, reason=reason, before=rates[0], after=rates[1], ratio=change
        )


def _judge(change: Estimate, below: float) -> tuple[State, str]:
    """Judge a point by its interval alone: a value without one may be chance."""
    text, ends = f"{interval(change, ratio)} of before", change.shown
    if ends is None:
        return "not settled", f"{text}, no interval from fewer than {stats.MIN_LAUNCHES} launches"
    if ends[1] < below:
        return "slower", f"{text}, below {below:g}"
    if ends[0] < below:
        return "not settled", f"{text}, on both sides of {below:g}"
    return "holds", f"{text}, not below {below:g}"
