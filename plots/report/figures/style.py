"""How every figure looks: style, axes at their true places, and marks with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from matplotlib.axes import Axes

from bench.study.stats import Estimate
from plots.analyse.scaling import Scaled, Throughput, size
from plots.report.axes import bars, cut, dots, ends, in_order, is_log, look, reach

GREY = "#666666"


STYLE: Any = {  # Any: matplotlib's stubs want each key as a literal
    "svg.hashsalt": "plots",  # without it every drawing has new identifiers
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a dollar in a name is a dollar
}


_ARROWS = {
    ("x", 0): 4,
    ("x", 1): 5,
    ("y", 0): 7,
    ("y", 1): 6,
}  # matplotlib's carets, by axis and end: left, right, down, up


Row = TypeVar("Row", Throughput, Scaled)


def cells_of(rows: Iterable[Throughput | Scaled]) -> list[str]:
    """The cells of some rows, in the order of a legend."""
    return in_order(r.point.cell for r in rows)


def scale_axes(ax: Axes, values: Sequence[int], frame: tuple[float, float], log_y: bool) -> None:
    """Ranks or batches at their true places on the x axis; ticks and limits of both."""
    if is_log(values):
        ax.set_xscale("log", base=2)
    if log_y:
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:,g}")
    ax.minorticks_off()
    marks = sorted(set(values))
    ax.set_xticks(marks, [str(v) for v in marks])
    ax.set_xlim(*ends(values))
    ax.set_ylim(*frame)


def frame_of(estimates: Sequence[Estimate], log_y: bool, *others: float) -> tuple[float, float]:
    """Ends of the y axis, which starts at 0 unless it is logarithmic."""
    low, high = reach(estimates, *others)
    return (low, high) if log_y else (0, 1.04 * high)


def draw_series(
    ax: Axes,
    rows: Sequence[Row],
    cells: Sequence[str],
    frame: tuple[float, float],
    y: Callable[[Row], Estimate],
) -> None:
    """One line for each cell, with its intervals, or with single blocks where they are few; every
    mark at its true place.
    """
    for cell in cells:
        own = sorted(
            (r for r in rows if r.point.cell == cell), key=lambda r: size(r.curve, r.point)
        )
        if own:
            at = [size(r.curve, r.point) for r in own]
            mark(ax, at, [y(r) for r in own], frame, look(cell, cells), cell)


def mark(
    ax: Axes,
    at: Sequence[float],
    values: Sequence[Estimate],
    frame: tuple[float, float],
    style: dict[str, Any],
    label_: str,
) -> None:
    """Values over `at`, their intervals, single blocks as dots, and an arrow where the frame cuts
    an interval.
    """
    drawn = ax.errorbar(at, [e.value for e in values], yerr=bars(values), label=label_, **style)
    drawn.lines[0].set_clip_on(False)  # a marker at the frame is whole
    for x, e in zip(at, values, strict=True):
        draw_dots(ax, [(x, block) for block in dots(e)], style)
        draw_arrows(
            ax,
            [(x, end) for end in cut(e, *frame)],
            [("y", int(end == frame[1])) for end in cut(e, *frame)],
            style,
        )


def draw_dots(ax: Axes, at: Sequence[tuple[float, float]], style: dict[str, Any]) -> None:
    if at:
        few = {"markersize": 0.3 * style["markersize"] + 1.5, "markeredgewidth": 0}
        ax.plot(
            *zip(*at, strict=True),
            marker="o",
            color=style["color"],
            ls="none",
            zorder=style["zorder"],
            **few,
        )


def draw_arrows(
    ax: Axes,
    at: Sequence[tuple[float, float]],
    ways: Sequence[tuple[str, int]],
    style: dict[str, Any],
) -> None:
    for (x, y), way in zip(at, ways, strict=True):
        whole = {"markersize": 4 + 0.4 * style["markersize"], "clip_on": False}
        ax.plot(
            [x],
            [y],
            marker=_ARROWS[way],
            color=style["color"],
            ls="none",
            zorder=style["zorder"],
            **whole,
        )


def draw_ideal(ax: Axes, values: Sequence[int], one: float) -> None:
    at = sorted(set(values))
    ax.plot(at, [one * v for v in at], "--", color=GREY, linewidth=1.1, label="ideal", zorder=1)
