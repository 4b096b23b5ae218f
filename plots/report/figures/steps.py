"""Steps one by one: the sequence with the cut of the warm-up, and the spread of timed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.analyse.points import ranks
from plots.analyse.steps import StepSeconds
from plots.analyse.study import Analysis, workload
from plots.report.axes import in_order, look
from plots.report.figures.style import GUIDE, add_titles, legend, name_axes, panels
from plots.report.format import count

_DRAWN = 2000  # of all timed steps, evenly by rank: a figure is no finer
_MARKED = 12  # markers of a line, so that lines differ without colour too


def draw(a: Analysis, rows: Sequence[StepSeconds]) -> Figure:
    """Left: median over runs, step by step, with the middle 80 %; right: all timed steps."""
    figure, (sequence, spread) = panels(8.4, 3.9, 2, share_y=False)
    cells = in_order(r.point.cell for r in rows)
    for row in sorted(rows, key=lambda row: cells.index(row.point.cell)):
        _draw_cell(sequence, spread, row, look(row.point.cell, cells))
    cut = max(r.warmup_steps for r in rows)
    sequence.axvline(cut - 0.5, ls="--", **GUIDE)
    top = max(1000 * float(np.max(r.high[r.warmup_steps :], initial=0)) for r in rows)
    sequence.set_ylim(0, 1.6 * top or None)  # a first step may take a hundred times as long
    sequence.annotate(
        " timed", (cut - 0.5, 0.02), xycoords=("data", "axes fraction"), fontsize="small"
    )
    name_axes(sequence, "step", "step of all ranks (ms)")
    name_axes(spread, "step of all ranks (ms)", "share of timed steps (%)")
    spread.set_ylim(0, 100)
    legend(spread)
    p = rows[0].point
    size = f"{ranks(p.world_size)}, {p.samples_per_rank} images per rank"
    title = f"Steps at {size}: warm-up, then {count(rows[0].runs, 'run')} timed"
    subtitle = ", ".join([workload(a), *p.words])
    notes = [
        "Left: median over runs of each step, shaded its middle 80 %; steps beyond the frame are "
        "part of the warm-up. Right: every timed step."
    ]
    timed, runs = sum(len(r.timed) for r in rows), sum(r.runs for r in rows)
    steps = f"{timed:,} timed steps of {count(runs, 'run')}"
    add_titles(a, figure, [p.variant], title, subtitle, notes, steps)
    return figure


def _draw_cell(sequence: Axes, spread: Axes, row: StepSeconds, style: dict[str, Any]) -> None:
    line = {k: style[k] for k in ("color", "marker", "markerfacecolor", "linestyle")}
    line |= {"linewidth": 1.2, "markersize": 0.7 * style["markersize"]}
    steps, n = np.arange(len(row.median)), len(row.timed)
    every = max(1, len(steps) // _MARKED)
    sequence.plot(steps, 1000 * row.median, **line, markevery=every, label=row.point.cell)
    band = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
    sequence.fill_between(steps, 1000 * row.low, 1000 * row.high, **band)
    at = np.linspace(0, n - 1, min(n, _DRAWN)).astype(int)
    every = max(1, len(at) // _MARKED)
    share = 100 * (at + 1) / n
    spread.plot(1000 * row.timed[at], share, **line, markevery=every, drawstyle="steps-post")
