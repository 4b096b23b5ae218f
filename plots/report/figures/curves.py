"""What every cell does along a curve: images/s, weak efficiency and strong speed-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.stats import Estimate
from bench.study.points import PointRow, ranks
from plots.analyse.scaling import size
from plots.analyse.study import Analysis, workload
from plots.analyse.variants import Variant, words
from plots.report.axes import Estimates, Extent, in_order, is_log, look, reach
from plots.report.figures.style import (
    GUIDE,
    caption,
    legend,
    mark,
    marks_along,
    name_axes,
    panels,
    scale_axes,
)
from plots.report.format import percent, rate, short

Rows = Sequence[PointRow]
_IMAGES_PER_S = attrgetter("images_per_s")
_BOUND = (
    "Dotted: if none of an all-reduce as measured alone were hidden behind the backward pass; a "
    "marker above it hides some."
)


def throughput(a: Analysis, rows: list[PointRow]) -> Figure:
    """Draw images/s of every cell, and of as many single processes."""
    curve, batch = rows[0].curve, rows[0].curve == "batch"
    figure, (ax,) = panels(7.2, 3.9)
    values, shown = [size(curve, r.point) for r in rows], [r.images_per_s for r in rows]
    alone = [r.images_per_s.value for r in rows if r.point.cell == "single" and not batch]
    log_y = not batch and is_log(values)
    frame = _frame(shown, log_y, *(base * max(values) for base in alone[:1]))
    notes = [
        "To compare cells use the paired ratio: these bars hold the machine's drift between "
        "launches, which pairing removes."
    ]
    _draw_series(ax, rows, rows, frame, _IMAGES_PER_S, rate)
    if alone:
        _draw_ideal(ax, values, alone[0])
        notes.append(f"Ideal: ranks x {rate(alone[0])} images/s of the single process.")
    scale_axes(ax, values, frame, log_y)
    name_axes(ax, "images per rank" if batch else "ranks", "throughput (images/s)")
    place, last = _at_largest(rows, _IMAGES_PER_S)
    legend(ax, {cell: short(e, rate) for cell, e in last.items()}, f"images/s at {place}")
    title = f"Images/s at {place}{'' if batch else f', {curve} scaling'}{_finding(last, rate)}"
    caption(a, figure, [_variant(rows)], title, _conditions(a, rows), notes, shown, frame)
    return figure


def scaling(a: Analysis, rows: list[PointRow]) -> Figure:
    """Draw scaling over the common baseline and, beside it, over each cell's own baseline."""
    weak = rows[0].curve == "weak"
    y = attrgetter("efficiency" if weak else "speedup")
    form = percent if weak else "{:.2f}".format
    common, shown = [r for r in rows if r.kind == "common"], [y(r) for r in rows]
    own_rows = [r for r in rows if r.kind == "own"] + _anchors(rows)
    figure, both = panels(8.4, 3.9, 2)
    values = [1, *(r.point.world_size for r in rows)]
    log_y = not weak
    frame = _frame(shown, log_y, 1.0, 1.0 if weak else max(values))
    headings = ("against one plain process", common), ("against its own one rank", own_rows)
    for ax, (heading, series) in zip(both, headings, strict=True):
        _draw_series(ax, series, rows, frame, y, form)
        if weak:
            ax.axhline(1, ls="--", label="ideal", **GUIDE)
        else:
            _draw_ideal(ax, values, 1.0)
        scale_axes(ax, values, frame, log_y)
        if not weak:
            _show_batches(ax, values, rows[0].point.samples_per_step)
        y_name = f"{'weak efficiency' if weak else 'speed-up'} T(1)/T(p)" if ax is both[0] else ""
        name_axes(ax, "ranks", y_name, heading if series else f"{heading}: not measured")
    if weak:
        both[0].yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    place, last = _at_largest(common or rows, y)
    against = "against one\nplain process" if common else "against\nits own one rank"
    legend(both[1], {cell: short(e, form) for cell, e in last.items()}, f"at {place}, {against}")
    notes = [_baseline(common[0]) if common else "No usable common baseline."]
    measured = {(r.curve, r.point) for r in common}
    if bounds := [b for b in a.bounds if (b.curve, b.point) in measured]:
        _draw_bounds(both[0], bounds, common)
        notes.append(_BOUND)
    name = "Weak efficiency" if weak else "Strong speed-up"
    title = f"{name} at {place}{_finding(last, form)}"
    caption(a, figure, [_variant(rows)], title, _conditions(a, rows), notes, shown, frame)
    return figure


def _draw_bounds(ax: Axes, bounds: Rows, rows: Rows) -> None:
    """Draw dotted, in its cell's colour, where a point would be if no exchange overlapped."""
    cells = in_order(r.point.cell for r in rows)
    y = attrgetter("visible_efficiency" if rows[0].curve == "weak" else "visible_speedup")
    for cell in in_order(b.point.cell for b in bounds):
        values = {b.point.world_size: y(b) for b in bounds if b.point.cell == cell}
        at = [1, *sorted(values)]
        colour = look(cell, cells)["color"]
        ax.plot(at, [1.0, *(values[n] for n in at[1:])], ":", color=colour, linewidth=1.3, zorder=1)


def _show_batches(ax: Axes, values: Sequence[int], samples_per_step: int) -> None:
    """Show images per rank above the axes: they shrink along a strong curve."""
    above = ax.secondary_xaxis("top")
    marks = marks_along(ax, values, log=True)
    above.set_xticks(marks, [f"{samples_per_step / n:g}" for n in marks], fontsize="small")
    above.tick_params(which="both", length=0)
    above.minorticks_off()
    above.set_xlabel("images per rank", fontsize="small")


def _anchors(rows: Rows) -> list[PointRow]:
    """Make each cell's point at one rank, 1 by definition: where its line is measured from."""
    one = Estimate(value=1.0, low=None, high=None, n=1)
    by_baseline = {r.baseline: r for r in rows if r.kind == "own"}
    values = {"efficiency": one, "speedup": one}
    return [PointRow(p, {**r.values, **values}) for p, r in by_baseline.items()]


def _baseline(row: PointRow) -> str:
    b, speed = row.baseline, rate(row.baseline_images_per_s.value)
    where = f"{b.cell}, {ranks(b.world_size)}, {b.samples_per_step} images per step"
    return f"Common baseline: {where}: {speed} images/s."


def _frame(estimates: Estimates, log_y: bool, *others: float) -> Extent:
    """Find the ends of the y axis, which starts at 0 unless it is logarithmic."""
    low, high = reach(estimates, *others)
    return (low, high) if log_y else (0, 1.04 * high)


def _draw_series(
    ax: Axes,
    rows: Rows,
    every: Rows,
    frame: Extent,
    y: Callable[[PointRow], Estimate],
    form: Callable[[float], str],
) -> None:
    """Draw one line for each cell of `every` that has rows, with every mark at its true place."""
    cells = in_order(r.point.cell for r in every)
    for cell in cells:
        estimates = {size(r.curve, r.point): y(r) for r in rows if r.point.cell == cell}
        if estimates:
            at = sorted(estimates)
            style = {**look(cell, cells), "label": cell}
            drawn = mark(ax, at, [estimates[x] for x in at], frame, style, form)
            drawn.lines[0].set_clip_on(False)  # a marker at the frame is whole


def _draw_ideal(ax: Axes, values: Sequence[int], one: float) -> None:
    at = sorted(set(values))
    ax.plot(at, [one * v for v in at], "--", label="ideal", **GUIDE)


def _at_largest(rows: Rows, y: Callable[[PointRow], Estimate]) -> tuple[str, dict[str, Estimate]]:
    """Describe the largest point in words, and find each cell's value there."""
    largest = max(size(r.curve, r.point) for r in rows)
    place = f"{largest} images per rank" if rows[0].curve == "batch" else ranks(largest)
    return place, {r.point.cell: y(r) for r in rows if size(r.curve, r.point) == largest}


def _conditions(a: Analysis, rows: Rows) -> str:
    curve, fixed = rows[0].curve, rows[0].point.fixed(rows[0].curve)
    per_rank, in_all = f"{fixed} images per rank", f"{fixed} images per step in all"
    constant = {"weak": per_rank, "strong": in_all, "batch": ranks(fixed)}[curve]
    return f"{constant}; {', '.join([workload(a), *words(_variant(rows))])}"


def _variant(rows: Rows) -> Variant:
    """Choose the longest variant, as that of `single` says nothing of an exchange."""
    return max((r.point.variant for r in rows), key=len)


def _finding(last: Mapping[str, Estimate], form: Callable[[float], str]) -> str:
    """Write the values at the largest point, if all have intervals and do not crowd a title."""
    if all(e.shown is None for e in last.values()):
        return f": n = {max(e.n for e in last.values())}, too few launches for an interval"
    values = ", ".join(f"{cell} {short(e, form)}" for cell, e in last.items())
    return f": {values}" if len(last) <= 2 and all(e.shown for e in last.values()) else ""
