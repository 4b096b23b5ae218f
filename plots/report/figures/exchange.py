"""Where a step's time goes, and what overlap gains: one row per cell and variant."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.stats import Estimate
from plots.analyse.exchange import SHOWN
from bench.study.points import Point, PointRow, ranks
from plots.analyse.study import Analysis, workload
from plots.analyse.variants import without
from plots.report.axes import Extent, in_order, look, reach
from plots.report.figures.style import caption, legend, mark, name_axes, name_rows, panels
from plots.report.format import ms, ratio, short

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


def breakdown(a: Analysis, rows: list[PointRow], costs: list[PointRow]) -> Figure:
    """Draw stacked parts of observed steps, a diamond for undisturbed ones, costs beside them."""
    rows = sorted(rows, key=lambda r: _order(r.point, [r.point for r in rows]))
    figure, (ax,) = panels(8.4, 1.9 + 0.55 * len(rows))
    undisturbed = [r.undisturbed_seconds for r in rows if r.undisturbed_seconds]
    shown = [*(r.step_seconds for r in rows), *undisturbed]
    frame = _from_zero(shown)
    left = [0.0] * len(rows)
    for part in SHOWN:
        widths = [getattr(r, f"{part}_seconds").value for r in rows]
        style = {"edgecolor": "white", "linewidth": 0.5, "label": part, **_LOOKS[part]}
        ax.barh(range(len(rows)), widths, 0.62, left, **style)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for i, row in enumerate(rows):
        if row.undisturbed_seconds is not None:
            label = {"label": "step, not observed"} if i == 0 else {}
            style = _NOT_OBSERVED | label
            mark(ax, [i], [row.undisturbed_seconds], frame, style, ms, axis="x", unit=" ms")
        for cost in (c for c in costs if c.point == row.point):
            _beside(ax, i, _numbers(cost))
    _finish(ax, [r.point for r in rows], frame, "time of a step (ms), mean over ranks")
    legend(ax, above=True)
    first = rows[0].point
    title = f"Where a step's time goes: {ranks(first.world_size)}, cell by cell"
    notes = [
        "exposed = waiting (for the slowest rank) + reducing; inflation: backward pass with minus "
        "without exchange; T(on) - T(off): steps that were not observed."
    ]
    variants = [r.point.variant for r in rows]
    caption(a, figure, variants, title, _conditions(a, first), notes, shown, frame)
    return figure


def overlap(a: Analysis, rows: list[PointRow]) -> Figure:
    """Draw two marks a cell: filled where the exchange overlaps, open where it follows."""
    rows = sorted(rows, key=lambda r: _order(r.point, [r.point for r in rows]))
    figure, (ax,) = panels(7.6, 1.9 + 0.5 * len(rows))
    shown = [e for r in rows for e in (r.overlapped_seconds, r.blocking_seconds)]
    frame, cells = reach(shown), [r.point.cell for r in rows]
    for i, row in enumerate(rows):
        style = look(row.point.cell, cells, 6.0) | {"linestyle": "none"}
        filled = style | {"markerfacecolor": style["color"], "label": "overlapped (filled)"}
        hollow = style | {"markerfacecolor": "white", "label": "blocking (open)"}
        both = (row.overlapped_seconds, filled, -0.16), (row.blocking_seconds, hollow, 0.16)
        for estimate, marker, shift in both:
            mark(ax, [i + shift], [estimate], frame, marker, ms, axis="x", unit=" ms")
        _beside(ax, i, f"blocking / overlapped\n{short(row.ratio, ratio)}")
    first, names = rows[0].point, [_without_overlap(r.point) for r in rows]
    _finish(ax, names, frame, "time of a step (ms)")
    title = f"What overlap gains: {ranks(first.world_size)}"
    notes = [
        "Filled marks: overlapped; open marks: blocking, one exchange of all gradients after the "
        "last of them."
    ]
    variants = [r.point.variant for r in rows]
    caption(a, figure, variants, title, _conditions(a, first), notes, shown, frame)
    return figure


def _order(point: Point, points: list[Point]) -> tuple[object, ...]:
    cells = in_order(p.cell for p in points)
    off = ("exchange", "off") in point.variant
    return cells.index(point.cell), off, point.variant


def _without_overlap(point: Point) -> Point:
    return point._replace(variant=without(point.variant, ["overlap"]))


def _from_zero(shown: list[Estimate]) -> Extent:
    return 0.0, 1.04 * reach(shown)[1]


def _beside(ax: Axes, row: int, text: str) -> None:
    ax.annotate(
        text, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize="small"
    )


def _numbers(cost: PointRow) -> str:
    named = {
        "exposed": cost.exposed_seconds,
        "inflation": cost.inflation_seconds,
        "T(on) - T(off)": cost.difference_seconds,
    }
    return "\n".join(f"{name} {short(e, ms)} ms" for name, e in named.items() if e is not None)


def _finish(ax: Axes, points: list[Point], frame: Extent, label: str) -> None:
    ax.set_xlim(*frame)
    ax.xaxis.set_major_formatter(lambda seconds, _: f"{1000 * seconds:g}")
    name_axes(ax, label)
    name_rows(ax, ["\n".join([p.cell, ", ".join(p.words)]) for p in points])


def _conditions(a: Analysis, point: Point) -> str:
    batch = f"{point.samples_per_rank} images per rank"
    return f"{batch}; {workload(a)}"
