"""The answer in a few lines: what the head of a report says,
and all that a terminal shows of it.
"""

from __future__ import annotations

from pathlib import Path

from plots.analyse import comparison, coverage
from plots.analyse.comparison import Comparison
from plots.analyse.points import ranks
from plots.analyse.study import Analysis
from plots.report.format import clean, count, interval, ratio

_LINES = 2  # comparisons that a terminal shows
NOT_COMPARED = (
    "Horovod and DDP were not compared: no block holds usable, comparable runs of both "
    "on one transport."
)


def headline(a: Analysis) -> str:
    """All verdicts in one sentence."""
    if not a.comparisons:
        return NOT_COMPARED
    return (
        f"Horovod against DDP: {comparison.tally(a.comparisons, sizes=True)}; margin "
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
        f"Horovod / DDP = {interval(c.paired.estimate, ratio)}{n}, margin "
        f"{100 * a.loaded.study.margin:g} %"
    )
    return f"{comparison.sentence(c, a.loaded.study.margin, a.tests)}. {numbers}."


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
