"""Images/s of every cell along one curve."""

from __future__ import annotations

from matplotlib.figure import Figure

from plots.analyse.points import ranks
from plots.analyse.scaling import Throughput, size
from plots.analyse.study import Analysis
from plots.report.axes import is_log
from plots.report.figures.captions import at_last, caption, conditions, cut_note, finding, legend
from plots.report.figures.style import cells_of, draw_ideal, draw_series, frame_of, scale_axes
from plots.report.format import rate, short


def draw(a: Analysis, rows: list[Throughput]) -> Figure:
    curve = rows[0].curve
    figure = Figure(figsize=(7.2, 3.9))
    ax = figure.subplots()
    values, shown = [size(curve, r.point) for r in rows], [r.images_per_s for r in rows]
    base = (
        next((r.images_per_s.value for r in rows if r.point.cell == "single"), None)
        if curve != "batch"
        else None
    )
    log_y = curve != "batch" and is_log(values)
    frame = frame_of(shown, log_y, *([base * max(values)] if base else []))
    draw_series(ax, rows, cells_of(rows), frame, lambda r: r.images_per_s)
    notes = [
        "To compare cells use the paired ratio: these bars hold the machine's drift between "
        "blocks, which pairing removes."
    ]
    if base:
        draw_ideal(ax, values, base)
        notes.append(f"Ideal: ranks x {rate(base)} images/s of the single process.")
    scale_axes(ax, values, frame, log_y)
    ax.set_xlabel("images per rank" if curve == "batch" else "ranks")
    ax.set_ylabel("throughput (images/s)")
    last = at_last(rows, lambda r: r.images_per_s)
    place = f"{max(values)} images per rank" if curve == "batch" else ranks(max(values))
    legend(ax, {cell: short(e, rate) for cell, e in last.items()}, f"images/s at {place}")
    title = (
        f"Images/s at "
        f"{place}{'' if curve == 'batch' else f', {curve} scaling'}{finding(last, rate)}"
    )
    caption(a, figure, title, conditions(a, curve, rows), shown, [*notes, *cut_note(shown, frame)])
    return figure
