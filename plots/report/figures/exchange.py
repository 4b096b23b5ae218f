"""The figure of a step's time, divided into parts, with one row per cell and arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from bench.study.points import ranks
from plots.analyse.exchange import SHOWN, StepParts
from plots.analyse.study import Analysis
from plots.report.figures.style import (
    bars_explained,
    caption,
    in_order,
    legend,
    mark,
    name_rows,
    panels,
    reach,
)
from plots.report.format import ms

# Okabe & Ito (2008), each with a hatch of its own: a stack has no markers
_LOOKS: dict[str, dict[str, Any]] = {
    "input": {"color": "#999999", "hatch": ".."},
    "forward": {"color": "#56B4E9", "hatch": ""},
    "backward": {"color": "#0072B2", "hatch": "//"},
    "waiting": {"color": "#F0E442", "hatch": "xx"},
    "reducing": {"color": "#D55E00", "hatch": "\\\\"},
    "optimiser": {"color": "#CC79A7", "hatch": "--"},
}
_NOT_OBSERVED: dict[str, Any] = {
    "color": "black",
    "marker": "D",
    "markersize": 5,
    "markerfacecolor": "white",
    "linestyle": "none",
    "capsize": 3,
    "elinewidth": 0.9,
    "zorder": 3,
}


def breakdown(a: Analysis, rows: Sequence[StepParts]) -> Figure:
    """Draw each observed step as a bar of its parts, and the undisturbed step time as a diamond."""
    cells = in_order(r.point.cell for r in rows)
    rows = sorted(rows, key=lambda r: (cells.index(r.point.cell), r.point.arm))
    figure, ((ax,),) = panels(1, 1, 0.35 + 0.62 * len(rows), len(SHOWN) + 1)
    undisturbed = [r.undisturbed_seconds for r in rows if r.undisturbed_seconds]
    values = [*(r.step_seconds for r in rows), *undisturbed]
    frame = 0.0, 1.04 * reach(values)[1]
    left = [0.0] * len(rows)
    for part in SHOWN:
        widths = [r.parts[part].value for r in rows]
        style = {"edgecolor": "white", "linewidth": 0.5, "label": part, **_LOOKS[part]}
        ax.barh(range(len(rows)), widths, 0.3, left, **style)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for i, row in enumerate(rows):
        if row.undisturbed_seconds is not None:
            style = _NOT_OBSERVED | ({} if i else {"label": "step, not observed"})
            mark(ax, [i], [row.undisturbed_seconds], style, ms, axis="x")
    points = [row.point for row in rows]
    name_rows(ax, [(", ".join(filter(None, (p.cell, p.arm))), "") for p in points])
    ax.set_xlim(*frame)
    ax.xaxis.set_major_formatter(lambda seconds, _: f"{1000 * seconds:g}")
    ax.set_xlabel("time of a step (ms), mean over ranks")
    legend(figure)
    notes = [
        f"{points[0].batch_per_rank} images per rank.",
        "Exposed = waiting for the slowest rank + reducing.",
        bars_explained(values),
    ]
    title = f"Where a step's time goes on {ranks(points[0].world_size)}"
    caption(a, figure, points, title, notes)
    return figure
