"""Curves of every cell: images/s and efficiency against ranks, or images/s against the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.points import CURVES, fixed
from bench.study.stats import Estimate
from plots.analyse.exchange import Bound
from plots.analyse.scaling import Efficiency, Throughput
from plots.analyse.study import Analysis
from plots.report.figures.style import (
    GUIDE,
    bars_explained,
    caption,
    in_order,
    is_log,
    legend,
    look,
    mark,
    panels,
    reach,
    scale_axes,
)
from plots.report.format import percent, rate
from plots.report.labels import line_label, page_arm

Rows = Sequence[Throughput | Efficiency | Bound]
_FIXED = {"weak": "images per rank", "strong": "images per step", "batch": "ranks"}
_BOUND = (
    "Dotted: if none of an all-reduce as measured alone were hidden behind the backward pass; a "
    "marker above it hides some."
)


def size(row: Throughput | Efficiency | Bound) -> int:
    """Return where a row is on the x axis: its ranks, or on a batch curve its images per rank."""
    return int(row.point.batch_per_rank if row.curve == "batch" else row.point.world_size)


def scaling(a: Analysis, rows: Sequence[Throughput], scaled: Sequence[Efficiency]) -> Figure:
    """Draw images/s and, if `scaled` is not empty, efficiency below it.

    Each curve has a column for each of its fixed sizes, such as weak at 16 images per rank. The
    efficiencies in `scaled` must all be of one `kind`.
    """
    batch = rows[0].curve == "batch"
    lines = {(r.curve, fixed(r.point, r.curve)) for r in rows}
    columns = sorted(lines, key=lambda line: (CURVES.index(line[0]), line[1]))
    cells = in_order(line_label(a, r.point) for r in rows)
    figure, grid = panels(1 + bool(scaled), len(columns), 1.5, len(cells) + 1)
    speeds = [r.images_per_s for r in rows]
    log_y = not batch and is_log([size(r) for r in rows])
    alone = {
        (r.curve, fixed(r.point, r.curve)): r.images_per_s.value
        for r in sorted(rows, key=lambda r: line_label(a, r.point) == "single")
        if r.point.cell == "single" and not batch
    }
    ideal = [one * max(map(size, rows)) for one in alone.values()]
    low, high = reach(speeds, *ideal)
    frame = (low, high) if log_y else (0.0, 1.04 * high)
    efficiencies = [r.efficiency for r in scaled]
    shares = (0.0, 1.04 * reach(efficiencies, 1.0)[1]) if scaled else (0.0, 1.0)
    for i, (curve, kept) in enumerate(columns):
        on = [r for r in rows if (r.curve, fixed(r.point, r.curve)) == (curve, kept)]
        values = sorted({*map(size, on)})
        top, bottom = grid[0][i], grid[-1][i]
        _draw(a, top, on, cells, "images_per_s", rate)
        if one := alone.get((curve, kept)):
            top.plot(values, [one * v for v in values], "--", label="ideal", **GUIDE)
        scale_axes(top, values, frame, log_y)
        top.set_title(f"{curve}: {kept}\n{_FIXED[curve]}")
        if scaled:
            below = [r for r in scaled if (r.curve, fixed(r.point, r.curve)) == (curve, kept)]
            _draw(a, bottom, below, cells, "efficiency", percent)
            bottom.axhline(1, ls="--", label="ideal", **GUIDE)
            bounds = [
                b for b in a.bounds if (b.curve, b.point) in {(r.curve, r.point) for r in below}
            ]
            _draw_bounds(a, bottom, bounds, cells)
            scale_axes(bottom, values, shares, log_y=False)
            bottom.set_xlim(top.get_xlim())
        bottom.set_xlabel("images per rank" if batch else "ranks")
    grid[0][0].set_ylabel("images/s")
    if scaled:
        grid[1][0].set_ylabel("efficiency")
        grid[1][0].yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    legend(figure)
    arm = page_arm(a, rows[-1].point)
    notes = [f"{arm}."] if arm else []
    if scaled:
        base = "one plain process" if scaled[0].kind == "common" else "the cell's own one rank"
        notes.append(f"Efficiency: images/s over ranks times those of {base}.")
        notes += [_BOUND] if a.bounds else []
    notes.append(bars_explained(speeds))
    title = "Images/s against images per rank" if batch else "Scaling against ranks"
    caption(a, figure, [r.point for r in rows], title, notes)
    return figure


def _draw(
    a: Analysis,
    ax: Axes,
    rows: Rows,
    cells: Sequence[str],
    name: str,
    form: Callable[[float], str],
) -> None:
    """Draw the field `name` of the rows as a line for each of `cells`; `form` writes a value."""
    for cell in cells:
        values: dict[int, Estimate] = {
            size(r): getattr(r, name) for r in rows if line_label(a, r.point) == cell
        }
        if any(line_label(a, r.point) == cell and getattr(r, "kind", "") == "own" for r in rows):
            values[1] = Estimate(value=1.0, low=None, high=None, n=1)  # where its line begins
        at = sorted(values)
        if at:
            style = {**look(cell, cells), "label": cell}
            mark(ax, at, [values[x] for x in at], style, form)


def _draw_bounds(a: Analysis, ax: Axes, bounds: Sequence[Bound], cells: Sequence[str]) -> None:
    """Draw a dotted line, in the cell's colour, where points would be if no exchange overlapped."""
    for cell in in_order(line_label(a, b.point) for b in bounds):
        values = {
            b.point.world_size: b.visible_efficiency
            for b in bounds
            if line_label(a, b.point) == cell
        }
        at = [1, *sorted({*values} - {1})]
        line = [1.0, *(values[n] for n in at[1:])]
        ax.plot(at, line, ":", color=look(cell, cells)["color"], linewidth=1.3, zorder=1)
