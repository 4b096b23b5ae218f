"""Comparisons of a study as a table in LaTeX."""

from __future__ import annotations

from bench.config import UsageError
from bench.study.words import sentence
from plots.analyse.study import Analysis, machine, workload
from plots.report.format import clean, interval, ratio
from plots.report.labels import by_weight, marked, over, sides

_HEAD = ("Transport", "Ranks", "Images per rank", "Conditions", "Ratio", "n", "Result")
_TEX = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_TEX |= {"~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}"}


def latex(a: Analysis) -> str:
    """Return the comparisons as a LaTeX table for booktabs. Raises UsageError if there are none."""
    if not a.comparisons:
        raise UsageError("nothing was compared, so there is no table; see the report")
    lines = ["\\toprule", " & ".join(_HEAD) + " \\\\", "\\midrule"]
    for c in by_weight(a):
        conditions = "; ".join(filter(None, [c.arm, "emulated" * c.emulated]))
        sizes = [str(c.world_size), f"{c.batch_per_rank:,}", conditions]
        numbers = [interval(c.estimate, ratio), str(c.estimate.n), sentence(c)]
        lines.append(" & ".join(map(_escape, [c.transport, *sizes, *numbers])) + " \\\\")
    reference, candidate = sides(a)
    text = (
        f"{over(a)}: images/s of {candidate} over those of the baseline {reference}, paired by "
        f"launch; n launches; study {a.loaded.study.name}, {workload(a)}, {machine(a.loaded.host)}."
    )
    caption = _escape(marked(a, a.comparisons, text))
    head = f"\\begin{{table}}\n\\caption{{{caption}}}\n\\begin{{tabular}}{{lrrllrp{{5cm}}}}"
    return "\n".join([head, *lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def _escape(text: str) -> str:
    """Escape text of a log or a study, so that LaTeX finds no command in it."""
    return "".join(_TEX.get(letter, letter) for letter in clean(text, 1000))
