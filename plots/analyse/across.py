"""Several studies of the same points: what changed between them, point by point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability, variants
from plots.analyse.comparison import Comparison
from plots.analyse.points import NotCompared, Point, PointRow, Table, describe
from plots.analyse.study import Analysis
from plots.analyse.variants import entry, in_order

_HOSTS = "hostnames"
_OF_SIZES = (_HOSTS, "affinity", *comparability.COUNTED, comparability.TUNED)
# how long was measured, not what
_DESIGN = ("warmup_steps", "windows", "lead_in_steps", "steps_per_window")


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One comparison in several studies."""

    first: Comparison
    ratios: Sequence[Estimate | None]  # by study; None where it has none


def changes(before: Analysis, after: Analysis, missing: list[NotCompared]) -> Iterator[PointRow]:
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
        rates = [stats.geometric_mean([point.samples_per_step / s for s in of]) for of in seconds]
        ratio = stats.welch_ratio(numerator=seconds[0], denominator=seconds[1])
        yield PointRow(point, {"before": rates[0], "after": rates[1], "ratio": ratio})


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


def aligned(studies: Sequence[Analysis]) -> Iterator[Analysis]:
    """Yield studies whose points have the same names: a study that lacks a variant names none of
    it, and gets the fields in every point's variant that any of the studies has in one.
    """
    fields = in_order({name for a in studies for p in a.table.blocks for name, _ in p.variant})
    for a in studies:
        names = {
            point: _named(point, next(iter(means.values())).facts[0], fields)
            for point, means in a.table.blocks.items()
        }
        blocks = {names[point]: means for point, means in a.table.blocks.items()}
        curves = {names[point]: of for point, of in a.table.curves.items()}
        compared = [replace(c, variant=names[c.points[0]].variant) for c in a.comparisons]
        yield replace(a, table=Table(blocks, curves), comparisons=compared)


def _named(point: Point, facts: comparability.Facts, fields: Sequence[str]) -> Point:
    """Give each field that the study does not vary the value of the point's runs."""
    kinds = ("", comparability.TUNED)
    values = dict(entry(k, facts[x + k]) for k in fields for x in kinds if x + k in facts)
    values |= dict(point.variant)
    variant = tuple((k, values[k]) for k in fields if k in values)
    return point._replace(variant=variants.beside(point.cell, variant))
