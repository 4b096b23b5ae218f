"""Weak efficiency and strong speed-up against two baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from bench.study.stats import Estimate
from plots.analyse.points import ranks
from plots.analyse.scaling import Scaled
from plots.analyse.study import Analysis
from plots.report.axes import is_log
from plots.report.figures.captions import at_last, caption, conditions, cut_note, finding, legend
from plots.report.figures.style import GREY, cells_of, draw_ideal, draw_series, frame_of, scale_axes
from plots.report.format import percent, rate, short


def draw(a: Analysis, rows: list[Scaled], weak: bool) -> Figure:
    """Two panels with one y axis: against the common baseline, and against each cell's own, which
    tells another story.
    """
    figure = Figure(figsize=(8.4, 3.9))
    panels = figure.subplots(1, 2, sharey=True)

    def y(r: Scaled) -> Estimate:
        return r.efficiency if weak else r.speedup

    values = [1, *(r.point.world_size for r in rows)]
    log_y = not weak and is_log(values)
    frame = frame_of([y(r) for r in rows], log_y, 1.0, 1.0 if weak else max(values))
    for ax, kind, heading in zip(
        panels,
        ("common", "own"),
        ("against one plain process", "against its own one rank"),
        strict=True,
    ):
        shown = [r for r in rows if r.kind == kind] + (_anchors(rows) if kind == "own" else [])
        draw_series(ax, shown, cells_of(rows), frame, y)
        if weak:
            ax.axhline(1, ls="--", color=GREY, linewidth=1.1, label="ideal", zorder=1)
        else:
            draw_ideal(ax, values, 1.0)
        scale_axes(ax, values, frame, log_y)
        ax.set_title(heading if shown else f"{heading}: not measured", fontsize=9)
        ax.set_xlabel("ranks")
    panels[0].set_ylabel("weak efficiency T(1)/T(p)" if weak else "speed-up T(1)/T(p)")
    if weak:
        panels[0].yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    common = [r for r in rows if r.kind == "common"]
    last, form = at_last(common or rows, y), percent if weak else (lambda x: f"{x:.2f}")
    place = ranks(max(r.point.world_size for r in common or rows))
    against = "against one\nplain process" if common else "against\nits own one rank"
    legend(panels[1], {cell: short(e, form) for cell, e in last.items()}, f"at {place}, {against}")
    notes = (
        [f"Common baseline: {_baseline(common[0])}."] if common else ["No usable common baseline."]
    )
    title = f"{'Weak efficiency' if weak else 'Strong speed-up'} at {place}{finding(last, form)}"
    notes += cut_note([y(r) for r in rows], frame)
    caption(a, figure, title, conditions(a, rows[0].curve, rows), [y(r) for r in rows], notes)
    return figure


def _anchors(rows: Sequence[Scaled]) -> list[Scaled]:
    """Each cell against itself at one rank: 1 by definition, so that its line starts where it is
    measured from.
    """
    one = Estimate(value=1.0, low=None, high=None, n=1)
    own = {r.baseline: r for r in rows if r.kind == "own"}
    return [replace(r, point=baseline, efficiency=one, speedup=one) for baseline, r in own.items()]


def _baseline(row: Scaled) -> str:
    b = row.baseline
    return (
        f"{b.cell}, {ranks(b.world_size)}, {b.samples_per_step} images per step: "
        f"{rate(row.baseline_images_per_s.value)} images/s"
    )
