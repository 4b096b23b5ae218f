"""Where a step's time goes, and what overlap gains: one row per cell and arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.points import ranks
from plots.analyse.exchange import SHOWN, Overlap, StepParts
from plots.analyse.study import Analysis
from plots.report.figures.style import (
    Extent,
    bars_explained,
    caption,
    in_order,
    legend,
    look,
    mark,
    name_rows,
    panels,
    reach,
)
from plots.report.format import ms, ratio, short

StepRow = TypeVar("StepRow", StepParts, Overlap)

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
    """Draw stacked parts of observed steps, and a diamond for undisturbed ones."""
    rows = _sorted(rows)
    figure, ax = _rows_of(rows, len(SHOWN) + 1)
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
    name_rows(ax, [(_name(row), "") for row in rows])
    _finish(ax, frame, "time of a step (ms), mean over ranks")
    title = "Where a step's time goes"
    notes = ["Exposed = waiting for the slowest rank + reducing.", bars_explained(values)]
    legend(figure)
    _caption(a, figure, rows, title, notes)
    return figure


def overlap(a: Analysis, rows: Sequence[Overlap]) -> Figure:
    """Draw two marks a cell: filled where the exchange overlaps, open where it follows."""
    rows = _sorted(rows)
    figure, ax = _rows_of(rows)
    values = [e for r in rows for e in (r.overlapped_seconds, r.blocking_seconds)]
    frame, cells = reach(values), [r.point.cell for r in rows]
    for i, row in enumerate(rows):
        style = look(row.point.cell, cells, 6.0) | {"linestyle": "none"}
        filled = style | {"markerfacecolor": style["color"], "label": "overlapped (filled)"}
        hollow = style | {"markerfacecolor": "white", "label": "blocking (open)"}
        for e, marker, shift in (
            (row.overlapped_seconds, filled, -0.1),
            (row.blocking_seconds, hollow, 0.1),
        ):
            mark(ax, [i + shift], [e], marker, ms, axis="x")
    name_rows(ax, [(_name(r), f"blocking / overlapped {short(r.ratio, ratio)}") for r in rows])
    _finish(ax, frame, "time of a step (ms)")
    notes = ["Filled: overlapped; open: one exchange of all gradients after the last of them."]
    _caption(a, figure, rows, "What overlap gains", [*notes, bars_explained(values)])
    return figure


def _sorted(rows: Sequence[StepRow]) -> list[StepRow]:
    cells = in_order(r.point.cell for r in rows)
    return sorted(rows, key=lambda r: (cells.index(r.point.cell), r.point.arm))


def _rows_of(rows: Sequence[Any], names: int = 0) -> tuple[Figure, Axes]:
    figure, ((ax,),) = panels(1, 1, 0.35 + 0.62 * len(rows), names)
    return figure, ax


def _name(row: StepParts | Overlap) -> str:
    return ", ".join(filter(None, [row.point.cell, row.point.arm]))


def _finish(ax: Axes, frame: Extent, label: str) -> None:
    ax.set_xlim(*frame)
    ax.xaxis.set_major_formatter(lambda seconds, _: f"{1000 * seconds:g}")
    ax.set_xlabel(label)


def _caption(
    a: Analysis, figure: Figure, rows: Sequence[StepRow], title: str, notes: Sequence[str]
) -> None:
    first = rows[0].point
    batch, title = (
        f"{first.batch_per_rank} images per rank.",
        f"{title} on {ranks(first.world_size)}",
    )
    caption(a, figure, [r.point for r in rows], title, [batch, *notes])
