"""Efficiency as others published it, and as it was measured here, on both baselines."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from plots.imports.efficiency import Row
from plots.report.axes import look
from plots.report.figures.style import GREY, GUIDE, STYLE, scale_axes
from plots.report.format import clean


def draw(rows: Sequence[Row]) -> Figure:
    """A panel for each baseline; a line for each source, curve and backend."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.2))
        panels = figure.subplots(1, 2, sharey=True)
        cells = sorted({_cell(r.backend) for r in rows})
        lines = list(dict.fromkeys((r.source, r.curve, r.backend) for r in rows))
        worlds = sorted({1, *(r.world_size for r in rows)})
        for ax, baseline in zip(panels, ("own", "common"), strict=True):
            efficiency = f"{baseline}_efficiency"
            for line in lines:
                series = [r for r in rows if (r.source, r.curve, r.backend) == line]
                at = sorted((r.world_size, e) for r in series if (e := getattr(r, efficiency)))
                points = [(x, 100 * e.value) for x, e in at]
                if len(points) < 1 + (baseline == "own"):
                    continue
                style = look(_cell(line[2]), cells)
                kept = {k: style[k] for k in ("color", "marker", "markersize", "linewidth")}
                face = style["color"] if series[0].measured else "none"
                dash = "-" if line[1] == "weak" else ":"
                name = f"{clean(line[2], 30)}, {line[1]}\n{_short(line[0])}"
                ax.plot(
                    *zip(*points, strict=True),
                    **kept,
                    markerfacecolor=face,
                    linestyle=dash,
                    label=name,
                )
                ends = [(x, 100 * e.shown[0], 100 * e.shown[1]) for x, e in at if e.shown]
                ax.vlines(*zip(*ends, strict=True), color=style["color"]) if ends else None
            ax.axhline(100, ls="--", **GUIDE)
            scale_axes(ax, worlds, (0, 130), log_y=False)
            ax.set_xlabel("ranks")
            ax.set_title(
                f"against {'its own one rank' if baseline == 'own' else 'one plain process'}"
            )
        panels[0].set_ylabel("efficiency (%)")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right center", fontsize=7)
        figure.suptitle(
            "Scaling as published (hollow) and as measured here (filled)", x=0.01, ha="left"
        )
        foot = (
            "Solid: weak scaling; dotted: strong scaling. Published points: one run, no interval. "
            "Machines, wires and batches differ."
        )
        figure.supxlabel(foot, x=0.01, ha="left", fontsize=7, color=GREY)
        return figure


def _short(source: str) -> str:
    """A source without what stands behind it in brackets."""
    return clean(source.partition(" (")[0], 60)


def _cell(backend: str) -> str:
    """Theirs look as ours over MPI do, as no transport is told."""
    return backend if "/" in backend or backend == "single" else f"{backend}/mpi"
