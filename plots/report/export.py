"""Exports of a study: its comparisons in LaTeX, its step times in the text format of Extra-P."""

from __future__ import annotations

from collections import defaultdict

from bench.config import UsageError
from bench.study.definition import Point
from bench.study.points import fixed, ranks
from bench.study.words import sentence
from plots.analyse.study import Analysis, machine, workload
from plots.report.format import clean, interval, ratio
from plots.report.labels import by_weight, marked, over, sides

_HEAD = ("Transport", "Ranks", "Images per rank", "Conditions", "Ratio", "n", "Verdict")
_TEX = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_TEX |= {"~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}"}


def latex(a: Analysis) -> str:
    """Write the comparisons as a table for booktabs, whose caption names the baseline."""
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
    """Escape text of a log or a study, which is no command of LaTeX."""
    return "".join(_TEX.get(letter, letter) for letter in clean(text, 1000))


def extra_p(a: Analysis, curve: str) -> tuple[str, list[str]]:
    """Write seconds of a step against ranks: a region for each line, a value for each launch.

    Extra-P's text format has the same points in every region: what lacks one is left out, and named
    in remarks beside the text.
    """
    regions: dict[str, dict[int, Point]] = defaultdict(dict)
    for p in a.table.on(curve):
        if p.cell != "single":
            each = f"{fixed(p, curve)} images per {'step' if curve == 'strong' else 'rank'}"
            parts = (p.cell, each, p.arm, "emulated" * a.emulated(p.arm))
            regions["_".join(filter(None, parts)).replace(" ", "_")][p.world_size] = p
    worlds = sorted({world for region in regions.values() for world in region})
    lines = ["PARAMETER p", f"POINTS {' '.join(map(str, worlds))}", "METRIC step_seconds"]
    remarks = []
    for name, region in sorted(regions.items()):
        if lacking := [ranks(world) for world in worlds if world not in region]:
            remarks.append(f"left out: {name}, which has no {' and '.join(lacking)}")
            continue
        lines.append(f"REGION {name}")
        for world in worlds:
            means = a.table.launches[region[world]].values()
            lines.append(f"DATA {' '.join(repr(mean.step_seconds) for mean in means)}")
    if len(remarks) == len(regions):
        raise UsageError(f"no cell has all points of the curve {curve}; choose another")
    return "\n".join(lines) + "\n", remarks
