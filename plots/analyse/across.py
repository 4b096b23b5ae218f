"""Several studies of the same points: what changed between them, point by point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.study import comparability, stats
from bench.study.definition import Point
from bench.study.points import NotCompared, describe
from bench.study.stats import Estimate
from bench.study.verdict import Comparison
from plots.analyse.study import Analysis

_HOSTS = "hostnames"
_OF_SIZES = (_HOSTS, "affinity", *comparability.COUNTED, comparability.TUNED)
# how long was measured, not what
_DESIGN = ("warmup_steps", "windows", "lead_in_steps", "steps_per_window")


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One comparison in several studies."""

    first: Comparison
    ratios: Sequence[Estimate | None]  # by study; None where it has none


@dataclass(frozen=True, kw_only=True)
class Change:
    """Images per second of a point in two studies, and their ratio."""

    point: Point
    before: Estimate
    after: Estimate
    ratio: Estimate


def changes(before: Analysis, after: Analysis, missing: list[NotCompared]) -> Iterator[Change]:
    """Compare every point that either study has, in images/s; the ratio is unpaired, as other days
    are other blocks: Welch's interval on logs of block means.
    """
    for point in sorted(before.table.blocks.keys() | after.table.blocks.keys()):
        if lacking := [a for a in (before, after) if point not in a.table.blocks]:
            which = "earlier" if lacking[0] is before else "later"
            missing.append(NotCompared(describe(point), f"not in the {which} study", point))
            continue
        was, now = _work(before, point), _work(after, point)
        if other := comparability.differences(was, now, _DESIGN):
            reason = f"other work: {'; '.join(other)}"
            missing.append(NotCompared(describe(point), reason, point))
            continue
        seconds = [
            [m.step_seconds for m in a.table.blocks[point].values()] for a in (before, after)
        ]
        rates = [stats.geometric_mean([point.global_batch / s for s in of]) for of in seconds]
        ratio = stats.welch_ratio(numerator=seconds[0], denominator=seconds[1])
        yield Change(point=point, before=rates[0], after=rates[1], ratio=ratio)


def _work(a: Analysis, point: Point) -> list[comparability.Facts]:
    means = a.table.blocks[point].values()
    return [comparability.work_of(facts) for mean in means for facts in mean.facts]


def differences(studies: Sequence[Analysis]) -> list[tuple[str, list[str]]]:
    """List facts of the runs in which the studies differ: name, and each study's values."""
    by_study = [_facts(a) for a in studies]
    names = dict.fromkeys(name for facts in by_study for name in facts)
    rows = [(name, [facts.get(name, "-") for facts in by_study]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def beside(studies: Sequence[Analysis]) -> Iterator[Beside]:
    """Yield every comparison that at least one study makes."""
    comparisons = [{c.points: c for c in a.comparisons} for a in studies]
    for key in dict.fromkeys(key for one in comparisons for key in one):
        rows = [one.get(key) for one in comparisons]
        ratios = [None if row is None else row.estimate for row in rows]
        yield Beside(first=next(filter(None, rows)), ratios=ratios)


def shared_runs(studies: Sequence[Analysis]) -> bool:
    """Say whether two of them hold the same measurement, which is never another one."""
    seen: set[tuple[float, float]] = set()
    for a in studies:
        runs = a.loaded.runs.dropna(subset=["began_s"])
        measurements = set(zip(runs["began_s"], runs["step_seconds_mean"], strict=True))
        if measurements & seen:
            return True
        seen |= measurements
    return False


def measured(a: Analysis) -> str:
    """Name the day or days of a study's runs; 'not recorded' in older logs."""
    began = a.loaded.runs["began_s"].dropna()
    if began.empty:
        return "not recorded"
    days = dict.fromkeys(f"{datetime.fromtimestamp(s, UTC):%Y-%m-%d}" for s in sorted(began))
    return " to ".join([*days][:: max(1, len(days) - 1)])


def _facts(a: Analysis) -> Mapping[str, str]:
    """Collect the facts of all runs, without those that follow from a point's size or settings."""
    by_name: dict[str, set[str]] = {}
    for facts in a.loaded.runs["facts"]:
        for name, value in facts.items():
            if not name.startswith((*_OF_SIZES, *comparability.PER_BLOCK)):
                by_name.setdefault(name, set()).add(value)
    hosts = {host for hosts in a.loaded.runs["hosts"] for host in hosts}
    return {_HOSTS: ", ".join(sorted(hosts))} | {
        name: ", ".join(sorted(values)) for name, values in by_name.items()
    }
