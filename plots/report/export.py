"""Measured numbers for others: Extra-P's text format, a table in LaTeX."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from bench.config import UsageError
from bench.study.disk import write_whole
from plots.analyse.comparison import Comparison
from plots.analyse.points import Point, ranks
from plots.analyse.study import Analysis, machine, workload
from plots.report.answer import by_weight, emulation
from plots.report.format import clean, interval, ratio
from plots.report.verdicts import over, sentence, sides

_TEX = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_TEX |= {"~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}"}


def extra_p(a: Analysis, curve: str) -> tuple[str, list[str]]:
    """Seconds of a step against ranks, a region for each line of the curve, a value for each block.

    Extra-P's text format has the same points in every region: what lacks one is left out, and named
    beside the text.
    """
    points: dict[str, dict[int, Point]] = defaultdict(dict)
    for p in a.table.on(curve):
        if p.cell != "single":
            points[_region(a, p, curve)][p.world_size] = p
    worlds = sorted({world for region in points.values() for world in region})
    whole = {name: region for name, region in points.items() if sorted(region) == worlds}
    if not whole:
        raise UsageError(f"no cell has all points of the curve {curve}; choose another")
    lacking = {
        name: " and ".join(ranks(world) for world in worlds if world not in region)
        for name, region in points.items()
        if name not in whole
    }
    lines = ["PARAMETER p", f"POINTS {' '.join(map(str, worlds))}", "METRIC step_seconds"]
    for name, region in sorted(whole.items()):
        lines.append(f"REGION {name}")
        for world in worlds:
            means = a.table.blocks[region[world]].values()
            lines.append(f"DATA {' '.join(repr(mean.step_seconds) for mean in means)}")
    return "\n".join(lines) + "\n", [
        f"left out: {name}, which has no {sizes}" for name, sizes in sorted(lacking.items())
    ]


def _region(a: Analysis, point: Point, curve: str) -> str:
    """All that tells a line of the curve from others: 'ddp/mpi_16_images_per_rank'."""
    each = "step" if curve == "strong" else "rank"
    words = [point.cell, f"{point.fixed(curve)} images per {each}", *point.words]
    words += ["emulated"] if a.emulated(point.variant) else []
    return "_".join(words).replace(" ", "_")


def latex(a: Analysis) -> str:
    """The comparisons as a table for `\\usepackage{booktabs}`; its caption names the baseline."""
    if not a.comparisons:
        raise UsageError("nothing was compared, so there is no table; see the report")
    rows = [[_tex(cell) for cell in _row(a, c)] for c in by_weight(a)]
    head = [
        "Transport",
        "Ranks",
        "Images per rank",
        "Conditions",
        "Ratio",
        "n",
        "Verdict",
    ]
    return "\n".join([
        "\\begin{table}",
        f"\\caption{{{_tex(_caption(a))}}}",
        "\\begin{tabular}{lrrllrp{5cm}}",
        "\\toprule",
        " & ".join(head) + " \\\\",
        "\\midrule",
        *(" & ".join(row) + " \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
        "",
    ])  # fmt: skip


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


def _tex(text: str) -> str:
    """Text of a log or a study, which is no command."""
    return "".join(_TEX.get(letter, letter) for letter in clean(text))


def write(a: Analysis, form: str, curve: str, path: Path) -> list[str]:
    """One of the formats; returns what to tell of it."""
    text, left = extra_p(a, curve) if form == "extra-p" else (latex(a), [])
    write_whole(path, text)
    return [*left, str(path)]
