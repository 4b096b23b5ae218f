"""Efficiency as others published it, and as it was measured here, on both baselines."""

from __future__ import annotations

from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from plots.report.figures.style import GUIDE, STYLE, inscribe, legend, look, panels, scale_axes
from plots.report.format import clean

_FOOT = (
    "Solid: weak scaling; dotted: strong scaling. Published points: one run, no interval. "
    "Machines, wires and batches differ."
)


def draw(rows: pd.DataFrame) -> Figure:
    """Draw a panel for each baseline, with a line for each source, curve and backend."""
    backends = rows["backend"].where(
        rows["backend"].str.contains("/") | (rows["backend"] == "single"), rows["backend"] + "/mpi"
    )  # the look of the cell over MPI where no transport is told
    cells = sorted(set(backends))
    lines: Any = rows.assign(cell=backends).groupby(["source", "curve", "backend"], sort=False)
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = panels(1, 2, 3.2, names=2 * len(lines))
        figure.set_figwidth(9.6)
        for ax, kind in zip(axes, ("own", "common"), strict=True):
            for (source, curve, backend), series in lines:
                points = series.dropna(subset=[kind]).sort_values("world_size", kind="stable")
                if len(points) < 1 + (kind == "own"):  # the baseline alone
                    continue
                style = look(series["cell"].iloc[0], cells)
                style = {k: style[k] for k in ("color", "marker", "markersize", "linewidth")}
                measured = series["measured"].iloc[0]
                style["markerfacecolor"] = style["color"] if measured else "none"
                style["linestyle"] = "-" if curve == "weak" else ":"
                short = clean(source.partition(" (")[0], 60)
                name = f"{clean(backend, 30)}, {curve}\n{short}"
                percents = [100 * e.value for e in points[kind]]
                ax.plot(points["world_size"].tolist(), percents, **style, label=name)
                for x, e in zip(points["world_size"], points[kind], strict=True):
                    if e.shown:
                        ax.vlines(x, 100 * e.shown[0], 100 * e.shown[1], color=style["color"])
            ax.axhline(100, ls="--", **GUIDE)
            scale_axes(ax, sorted({1, *rows["world_size"]}), (0, 130), log_y=False)
            against = {"own": "its own one rank", "common": "one plain process"}[kind]
            ax.set(xlabel="ranks", title=f"against {against}")
        axes[0].set_ylabel("efficiency (%)")
        legend(figure)
        inscribe(figure, "Scaling as published (hollow) and as measured here (filled)", _FOOT)
        return figure
