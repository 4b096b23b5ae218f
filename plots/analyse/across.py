"""Several studies of the same points: what changed between them, point by point, and pooled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability
from plots.analyse.comparison import Comparison
from plots.analyse.points import Point
from plots.analyse.study import Analysis

# what makes blocks of two studies exchangeable; another date alone does not matter
_SAME = ("cpu", "hostnames", "code_sha256", "platform", "versions.")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One point in two studies: images/s of the later over the earlier."""

    point: Point
    before: Estimate  # images/s
    after: Estimate
    ratio: Estimate  # unpaired: other days, other blocks


@dataclass(frozen=True, kw_only=True)
class Both:
    """One comparison in several studies: each one's ratio and, where blocks may be pooled, all."""

    reference: str
    candidate: str
    world_size: int
    samples_per_rank: int
    settings: str
    variant: tuple[str, ...]
    ratios: Sequence[Estimate | None]  # by study; None where it has none
    pooled: Estimate | None
    not_pooled: str  # why


def changes(before: Analysis, after: Analysis) -> Iterator[Change]:
    """Every point that both have; Welch's interval on logs of block means."""
    for point in sorted(before.table.blocks.keys() & after.table.blocks.keys()):
        seconds = [
            [m.step_seconds for m in a.table.blocks[point].values()] for a in (before, after)
        ]
        rates = [stats.geometric_mean([point.samples_per_step / s for s in of]) for of in seconds]
        ratio = stats.welch_ratio(numerator=seconds[0], denominator=seconds[1])
        yield Change(point=point, before=rates[0], after=rates[1], ratio=ratio)


def differences(studies: Sequence[Analysis]) -> list[tuple[str, list[str]]]:
    """Facts of the runs in which the studies differ: name, and each study's values."""
    told = [_facts(a) for a in studies]
    names = dict.fromkeys(name for facts in told for name in facts)
    rows = [(name, [facts.get(name, "-") for facts in told]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def both(studies: Sequence[Analysis]) -> Iterator[Both]:
    """Every comparison that at least one study makes."""
    found = [{_key(c): c for c in a.comparisons} for a in studies]
    apart = _apart(studies)
    for key in dict.fromkeys(key for one in found for key in one):
        rows = [one.get(key) for one in found]
        there = [row for row in rows if row is not None]
        pooled = None
        if not apart and len(there) > 1:
            pooled = stats.geometric_mean([r for row in there for r in row.paired.ratios])
        first = there[0]
        yield Both(
            reference=first.reference,
            candidate=first.candidate,
            world_size=first.world_size,
            samples_per_rank=first.samples_per_rank,
            settings=first.settings,
            variant=first.variant,
            ratios=[None if row is None else row.paired.estimate for row in rows],
            pooled=pooled,
            not_pooled=apart or ("" if len(there) > 1 else "in one study alone"),
        )


def _key(c: Comparison) -> tuple[object, ...]:
    point = c.world_size, c.samples_per_rank, c.settings, c.variant
    return c.reference, c.candidate, *point


def _apart(studies: Sequence[Analysis]) -> str:
    """Why blocks of these studies are not exchangeable; '' where they are."""
    differ = [name for name, _ in differences(studies) if name.startswith(_SAME)]
    return f"other {', '.join(differ)}" if differ else ""


def _facts(a: Analysis) -> Mapping[str, str]:
    """Of all runs together; what points differ in is left out."""
    told: dict[str, set[str]] = {}
    for facts in a.loaded.runs["facts"]:
        for name, value in facts.items():
            if not name.startswith((*comparability.OF_THE_POINT, *comparability.PER_BLOCK)):
                told.setdefault(name, set()).add(value)
    hosts = {host for hosts in a.loaded.runs["hosts"] for host in hosts}
    return {"hostnames": ", ".join(sorted(hosts))} | {
        name: ", ".join(sorted(values)) for name, values in told.items()
    }
