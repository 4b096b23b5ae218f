"""The comparisons as a table in LaTeX, for `\\usepackage{booktabs}`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.config import UsageError
from bench.study.verdict import Comparison
from plots.analyse.study import Analysis, machine, workload
from plots.report.format import clean, interval, ratio
from plots.report.verdicts import by_weight, marked, over, sentence, sides

_HEAD = ("Transport", "Ranks", "Images per rank", "Conditions", "Ratio", "n", "Verdict")
_LONGEST = 1000  # letters, of a caption
_TEX = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_TEX |= {"~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}"}


def export(a: Analysis) -> str:
    """Write the comparisons as a table, whose caption names the baseline."""
    if not a.comparisons:
        raise UsageError("nothing was compared, so there is no table; see the report")
    rows = (_row(a, c) for c in by_weight(a))
    return _table(_caption(a), "lrrllrp{5cm}", _HEAD, rows)


def _row(a: Analysis, c: Comparison) -> list[str]:
    """Make a row as the page has it; a row of emulated runs says so itself."""
    e, conditions = c.estimate, "; ".join(filter(None, [c.arm, "emulated" * c.emulated]))
    sizes = [str(c.world_size), f"{c.batch_per_rank:,}"]
    return [c.transport, *sizes, conditions, interval(e, ratio), str(e.n), sentence(c)]


def _caption(a: Analysis) -> str:
    reference, candidate = sides(a)
    text = (
        f"{over(a)}: images/s of {candidate} over those of the baseline "
        f"{reference}, paired by launch; n launches; study {a.loaded.study.name}, {workload(a)}, "
        f"{machine(a.loaded.host)}."
    )
    return marked(a, a.comparisons, text)


def _table(caption: str, alignment: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Escape plain texts, which are no commands, and set them as a table."""
    lines = (" & ".join(map(_escape, row)) + " \\\\" for row in rows)
    return "\n".join([
        "\\begin{table}",
        f"\\caption{{{_escape(caption)}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
        " & ".join(map(_escape, head)) + " \\\\",
        "\\midrule",
        *lines,
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
        "",
    ])  # fmt: skip


def _escape(text: str) -> str:
    """Escape text of a log or a study, which is no command of LaTeX."""
    return "".join(_TEX.get(letter, letter) for letter in clean(text, _LONGEST))
