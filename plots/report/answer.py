"""The answer in a few lines: the head of a report, and all that a terminal shows of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from plots.analyse import coverage
from plots.analyse.comparison import Comparison
from plots.analyse.points import ranks
from plots.analyse.scaling import Scaled
from plots.analyse.study import Analysis
from plots.report.format import clean, count, interval, percent, rate, ratio, rule
from plots.report.verdicts import over, sentence, sides, tally

_LINES = 2  # comparisons that a terminal shows
_MOST_ANSWERS = 8  # comparisons at the head of the page; all are in its tables


def versus(a: Analysis) -> str:
    """The candidate against the reference, in words."""
    return " against ".join(reversed(sides(a.reference, a.candidate)))


def _headline(a: Analysis) -> str:
    """All verdicts in one sentence."""
    found = "not compared, as no block holds usable, comparable runs of both on one transport"
    if a.comparisons:
        found = f"{tally(a.comparisons, sizes=True)}; margin {rule(a.loaded.study.margin)}"
    return f"{versus(a)}: {found}."


def _each(a: Analysis) -> list[tuple[str, str]]:
    """Where and what of every comparison; the primary one first, then the largest worlds."""
    compared = sorted(a.comparisons, key=lambda c: (not c.primary, -c.world_size))
    return [(_where(c), _said(c, a)) for c in compared]


def _where(c: Comparison) -> str:
    conditions = "; ".join([", ".join(c.curves), c.settings, *c.variant])
    place = f"{ranks(c.world_size)}, {c.samples_per_rank} images per rank, {c.transport}"
    return f"{'Primary: ' if c.primary else ''}{place} ({conditions})"


def _said(c: Comparison, a: Analysis) -> str:
    """Verdict, ratio with its interval, n and margin."""
    margin, e = a.loaded.study.margin, c.paired.estimate
    n = f", n = {e.n}" if e.shown else ""
    numbers = f"{over(c.reference, c.candidate)} = {interval(e, ratio)}{n}, margin {rule(margin)}"
    return f"{sentence(c, margin, a.tests)}. {numbers}."


def missing(a: Analysis) -> str:
    """What a reader must know is not there, or not as it should be; else how much there is."""
    pairs = sum(
        n.absent is None or coverage.is_planned(n.absent, a.planned) for n in a.not_compared
    )
    blocks, unusable = a.loaded.study.blocks, len(a.loaded.unusable)
    lacks = {
        f"{count(len(a.gaps), 'planned point')} without all {blocks} blocks": a.gaps,
        count(unusable, "unusable log"): unusable,
        f"{count(pairs, 'pair')} not compared": pairs,
    }
    doubts = {
        "cells ended with different parameters": any(d.mismatches for d in a.digests),
        "environments are not equal": any(c.unequal for c in a.comparisons),
    }
    lacking = ", ".join(said for said, there in lacks.items() if there)
    doubted = ", ".join(said for said, there in doubts.items() if there)
    whole = "All planned blocks are there; " if blocks and a.planned else ""
    return (
        f"{f'Equal work is in doubt: {doubted}. ' if doubted else ''}"
        f"{f'Missing: {lacking}; ' if lacking else whole}"
        f"{count(len(a.loaded.runs), 'usable run')} in {count(a.blocks, 'block')}."
    )


def terminal(a: Analysis, page: Path, others: int) -> list[str]:
    """At most five lines: verdicts, the first comparisons, what is missing, where the report is."""
    first = [f"{where}: {said}" for where, said in _each(a)[:_LINES]]
    lines = [clean(line, 500) for line in (_headline(a), *first, missing(a))]
    return [*lines, f"{page} and {count(others, 'other file')}"]


def lines(a: Analysis) -> list[str]:
    """The head of the page, one finding a line."""
    found = [
        f"**Equal work is in doubt:** at {ranks(d.world_size)} cells ended with different "
        f"parameters ({'; '.join(d.mismatches)})."
        for d in a.digests
        if d.mismatches
    ]
    found += [
        f"**The environments are not equal:** {said}, as the site asks; every ratio marked so "
        f"compares these settings as well."
        for said in dict.fromkeys(u for c in a.comparisons for u in c.unequal)
    ]
    compared = _each(a)
    if len(compared) != 1:
        found.append(f"**{_headline(a)}**" if compared else _headline(a))
    found += [f"**{where}:** {said}" for where, said in compared[:_MOST_ANSWERS]]
    if more := compared[_MOST_ANSWERS:]:
        found.append(f"The other {count(len(more), 'comparison')}: see the table below.")
    if a.gains:
        found.append(
            "What the variants gain over the plainest one stands under [Variants](#variants)."
        )
    return found + _scaling(a)


def _scaling(a: Analysis) -> list[str]:
    """For each curve, variant, settings and batch the largest point against one process."""
    series: dict[tuple[str, tuple[str, ...], str, int], list[Scaled]] = defaultdict(list)
    for s in a.efficiency:
        if s.kind == "common":
            p = s.point
            series[s.curve, p.variant, p.settings, p.fixed(s.curve)].append(s)
    lines = []
    for (curve, variant, settings, fixed), rows in series.items():
        largest = max(s.point.world_size for s in rows)
        last = [s for s in rows if s.point.world_size == largest]
        if curve == "weak":
            name, part = "Weak efficiency", "rank"
            values = [f"{s.point.cell} {interval(s.efficiency, percent)}" for s in last]
        else:
            name, part = "Strong speed-up", "step"
            values = [f"{s.point.cell} {interval(s.speedup, ratio)}" for s in last]
        base = f"one plain process at {rate(last[0].baseline_images_per_s.value)} images/s"
        conditions = "; ".join([f"{fixed} images per {part}", settings, *variant])
        where = f"{ranks(largest)} against {base} ({conditions})"
        lines.append(f"{name} at {where}: {', '.join(values)}.")
    return lines
