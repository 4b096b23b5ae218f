"""Efficiency as others published it, and as it was measured here, on both baselines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.imports.efficiency import CurveRow
from plots.report.axes import PRESETS, drawn_as, look
from plots.report.figures.style import (
    GREY,
    GUIDE,
    drawing,
    legend,
    panels,
    scale_axes,
)
from plots.report.format import clean

_BASELINES = {"own": "its own one rank", "common": "one plain process"}


def draw(rows: Sequence[CurveRow]) -> Figure:
    """Draw a panel for each baseline, with a line for each source, curve and backend."""
    cells = sorted({_cell(r.backend) for r in rows})
    lines: dict[tuple[str, str, str], list[CurveRow]] = defaultdict(list)
    for row in rows:
        lines[row.source, row.curve, row.backend].append(row)
    worlds = sorted({1, *(r.world_size for r in rows)})
    wide = replace(PRESETS["page"], width_in=9.6)
    with drawn_as(wide), drawing(wide):
        figure, (axes,) = panels(1, 2, 3.2, names=3 * len(lines))
        for ax, (baseline, name) in zip(axes, _BASELINES.items(), strict=True):
            for series in lines.values():
                _draw_line(ax, series, baseline, cells)
            ax.axhline(100, ls="--", **GUIDE)
            scale_axes(ax, worlds, (0, 130), log_y=False)
            ax.set(xlabel="ranks", title=f"against {name}")
        axes[0].set_ylabel("efficiency (%)")
        legend(figure, columns=2)
        title = "Scaling as published (hollow) and as measured here (filled)"
        figure.suptitle(title, x=0.01, ha="left", wrap=True, fontweight="bold")
        foot = (
            "Solid: weak scaling; dotted: strong scaling. Published points: one run, no interval. "
            "Machines, wires and batches differ."
        )
        figure.supxlabel(foot, x=0.01, ha="left", wrap=True, color=GREY)
        return figure


def _draw_line(ax: Axes, series: Sequence[CurveRow], baseline: str, cells: Sequence[str]) -> None:
    first = series[0]
    at = sorted((r.world_size, e) for r in series if (e := getattr(r, f"{baseline}_efficiency")))
    points = [(x, 100 * e.value) for x, e in at]
    if len(points) < 1 + (baseline == "own"):
        return
    style = look(_cell(first.backend), cells)
    style = {k: style[k] for k in ("color", "marker", "markersize", "linewidth")}
    style["markerfacecolor"] = style["color"] if first.measured else "none"
    style["linestyle"] = "-" if first.curve == "weak" else ":"
    name = f"{clean(first.backend, 30)}, {first.curve}\n{_short(first.source)}"
    ax.plot(*zip(*points, strict=True), **style, label=name)
    for x, e in at:
        if e.shown:
            ax.vlines(x, 100 * e.shown[0], 100 * e.shown[1], color=style["color"])


def _short(source: str) -> str:
    """Shorten a source by what stands behind it in brackets."""
    return clean(source.partition(" (")[0], 60)


def _cell(backend: str) -> str:
    """Name the cell whose look a backend has: the one over MPI where no transport is told."""
    return backend if "/" in backend or backend == "single" else f"{backend}/mpi"
