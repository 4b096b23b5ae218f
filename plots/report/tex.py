"""A table in LaTeX, for `\\usepackage{booktabs}`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plots.report.format import clean

_LONGEST = 1000  # letters, of a caption
_TEX = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_TEX |= {"~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}"}


def table(caption: str, alignment: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Plain texts in, which are no commands: they are escaped here."""
    lines = (" & ".join(map(escape, row)) + " \\\\" for row in rows)
    return "\n".join([
        "\\begin{table}",
        f"\\caption{{{escape(caption)}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
        " & ".join(map(escape, head)) + " \\\\",
        "\\midrule",
        *lines,
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
        "",
    ])  # fmt: skip


def escape(text: str) -> str:
    """Text of a log or a study, which is no command of LaTeX."""
    return "".join(_TEX.get(letter, letter) for letter in clean(text, _LONGEST))
