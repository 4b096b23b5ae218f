"""The answer in a few lines: what the head of a report says,
and all that a terminal shows of it.
"""

from __future__ import annotations

from pathlib import Path

from plots.analyse import coverage
from plots.analyse.comparison import Comparison
from plots.analyse.points import ranks
from plots.analyse.scaling import Scaled
from plots.analyse.study import Analysis
from plots.report.format import clean, count, interval, percent, rate, ratio
from plots.report.verdicts import over, sentence, sides, tally

_LINES = 2  # comparisons that a terminal shows
_MOST_ANSWERS = 8  # comparisons at the head of the page; all are in its tables


def versus(a: Analysis) -> str:
    """The candidate against the reference, in words."""
    return " against ".join(reversed(sides(a.reference, a.candidate)))


def headline(a: Analysis) -> str:
    """All verdicts in one sentence."""
    if not a.comparisons:
        return (
            f"{versus(a)}: not compared, as no block holds usable, comparable runs of both on one "
            f"transport."
        )
    return (
        f"{versus(a)}: {tally(a.comparisons, sizes=True)}; margin "
        f"{100 * a.loaded.study.margin:g} %."
    )


def first(a: Analysis) -> list[Comparison]:
    """The comparisons, the primary one on top as it is what was asked about, then the largest
    worlds.
    """
    return sorted(a.comparisons, key=lambda c: (not c.primary, -c.world_size))


def where(c: Comparison) -> str:
    """Point, transport and conditions of a comparison."""
    conditions = "; ".join([", ".join(c.curves), c.settings, *c.variant])
    primary = "Primary: " if c.primary else ""
    return (
        f"{primary}{ranks(c.world_size)}, {c.samples_per_rank} images per rank, {c.transport} "
        f"({conditions})"
    )


def said(c: Comparison, a: Analysis) -> str:
    """Verdict, ratio with its interval, n and margin."""
    n = f", n = {c.paired.n}" if c.paired.estimate.shown else ""
    numbers = (
        f"{over(c.reference, c.candidate)} = {interval(c.paired.estimate, ratio)}{n}, margin "
        f"{100 * a.loaded.study.margin:g} %"
    )
    return f"{sentence(c, a.loaded.study.margin, a.tests)}. {numbers}."


def missing(a: Analysis) -> str:
    """What a reader must know is not there, or not as it should be; else how much there is."""
    runs = f"{count(len(a.loaded.runs), 'usable run')} in {count(a.blocks, 'block')}"
    found = (
        [f"{count(len(a.gaps), 'planned point')} without all {a.loaded.study.blocks} blocks"]
        if a.gaps
        else []
    )
    found += [f"{count(len(a.loaded.unusable), 'unusable log')}"] if a.loaded.unusable else []
    wanted = [
        n for n in a.not_compared if n.absent is None or coverage.is_planned(n.absent, a.planned)
    ]
    found += [f"{count(len(wanted), 'pair')} not compared"] if wanted else []
    doubts = (
        ["cells ended with different parameters"] if any(d.mismatches for d in a.digests) else []
    )
    doubts += ["environments are not equal"] if any(c.unequal for c in a.comparisons) else []
    doubt = f"Equal work is in doubt: {', '.join(doubts)}. " if doubts else ""
    whole = "All planned blocks are there; " if a.loaded.study.blocks and a.planned else ""
    return f"{doubt}{'Missing: ' + ', '.join(found) + '; ' if found else whole}{runs}."


def terminal(a: Analysis, page: Path, others: int) -> list[str]:
    """At most five lines: verdicts, the comparisons that matter most, what is missing, where the
    report is.
    """
    lines = [headline(a), *(f"{where(c)}: {said(c, a)}" for c in first(a)[:_LINES]), missing(a)]
    return [*(clean(line, 500) for line in lines), f"{page} and {count(others, 'other file')}"]


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
    compared = first(a)
    found += [f"**{headline(a)}**"] if len(compared) > 1 else [] if compared else [headline(a)]
    found += [f"**{where(c)}:** {said(c, a)}" for c in compared[:_MOST_ANSWERS]]
    found += (
        [f"The other {count(len(compared) - _MOST_ANSWERS, 'comparison')}: see the table below."]
        if len(compared) > _MOST_ANSWERS
        else []
    )
    found += (
        ["What the variants gain over the plainest one stands under [Variants](#variants)."]
        if a.gains
        else []
    )
    return found + _scaling_answers(a)


def _scaling_answers(a: Analysis) -> list[str]:
    """One line per curve, variant, settings and batch: the largest point against the common
    baseline.
    """
    series: dict[tuple[str, tuple[str, ...], str, int], list[Scaled]] = {}
    for s in a.efficiency:
        if s.kind == "common":
            series.setdefault(
                (s.curve, s.point.variant, s.point.settings, s.point.fixed(s.curve)), []
            ).append(s)
    lines = []
    for (curve, variant, settings, fixed), rows in series.items():
        last = [s for s in rows if s.point.world_size == max(r.point.world_size for r in rows)]
        weak = curve == "weak"
        values = ", ".join(
            f"{s.point.cell} "
            f"{interval(s.efficiency, percent) if weak else interval(s.speedup, ratio)}"
            for s in last
        )
        batch = f"{fixed} images per {'rank' if weak else 'step'}"
        base = f"one plain process at {rate(last[0].baseline_images_per_s.value)} images/s"
        name = "Weak efficiency" if weak else "Strong speed-up"
        conditions = "; ".join([batch, settings, *variant])
        lines.append(
            f"{name} at {ranks(last[0].point.world_size)} against {base} ({conditions}): {values}."
        )
    return lines
