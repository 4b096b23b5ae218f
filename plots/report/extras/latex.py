"""The comparisons as a table in LaTeX."""

from __future__ import annotations

from bench.config import UsageError
from plots.analyse.comparison import Comparison
from plots.analyse.study import Analysis, machine, workload
from plots.report import tex
from plots.report.answer import by_weight, emulation
from plots.report.format import interval, ratio
from plots.report.verdicts import over, sentence, sides

_HEAD = ("Transport", "Ranks", "Images per rank", "Conditions", "Ratio", "n", "Verdict")


def export(a: Analysis, curve: str) -> tuple[str, list[str]]:
    """The comparisons as a table for `\\usepackage{booktabs}`; its caption names the baseline."""
    if not a.comparisons:
        raise UsageError("nothing was compared, so there is no table; see the report")
    rows = (_row(a, c) for c in by_weight(a))
    return tex.table(_caption(a), "lrrllrp{5cm}", _HEAD, rows), []


def _row(a: Analysis, c: Comparison) -> list[str]:
    """As the page has it; a row of several kinds says of itself that it slept."""
    slept = ["emulated"] if a.emulated(c.variant) else []
    e, conditions = c.estimate, "; ".join([*c.words, *slept])
    sizes = [str(c.world_size), f"{c.samples_per_rank:,}"]
    return [c.transport, *sizes, conditions, interval(e, ratio), str(e.n), sentence(c)]


def _caption(a: Analysis) -> str:
    reference, candidate = sides(a.reference, a.candidate)
    mark = emulation(a, (c.variant for c in a.comparisons))
    text = (
        f"{over(a.reference, a.candidate)}: images/s of {candidate} over those of the baseline "
        f"{reference}, paired by launch; n launches; study {a.loaded.study.name}, {workload(a)}, "
        f"{machine(a.loaded.host)}."
    )
    return f"{mark}: {text}" if mark else text
