"""Candidate over reference, one row per point, with every block's own ratio as a dot."""

from __future__ import annotations

from matplotlib.figure import Figure

from plots.analyse.comparison import Comparison
from plots.analyse.points import CURVES, ranks
from plots.analyse.study import Analysis, workload
from plots.report.answer import label, marked, sides, tally
from plots.report.axes import look, ratio_ticks, reach, transport_order
from plots.report.figures.style import GREY, caption, mark, name_rows, spread
from plots.report.format import ratio, rule, short


def draw(a: Analysis, rows: list[Comparison]) -> Figure:
    """Forest plot: one row per point, the margin shaded, 1 marked, blocks from top to bottom."""
    rows = sorted(rows, key=_order)
    figure = Figure(figsize=(7.2, 1.9 + 0.5 * len(rows)))
    ax = figure.subplots()
    margin, found = a.loaded.study.margin, [c.paired.estimate for c in rows]
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#009E73", alpha=0.15, linewidth=0)
    ax.axvline(1, color=GREY, linewidth=1)
    blocks = [b for c in rows for b in c.paired.ratios]
    frame = reach(found, 1 / (1 + margin), 1 + margin, *blocks)
    for i, (c, e) in enumerate(zip(rows, found, strict=True)):
        style = look(c.candidate, [c.candidate]) | {"markersize": 6, "capsize": 3}
        if e.shown:  # else `mark` draws them
            spread(ax, i, e.blocks, style)
        mark(ax, [i], [e], frame, style, axis="x")
        text = f"{short(e, ratio)}{f', n = {e.n}' if e.shown else ''}\n{label(c)}"
        ax.annotate(text, (1.01, i), xycoords=("axes fraction", "data"), va="center", fontsize=7.5)
    ax.set_xscale("log")  # half and double are equally far from 1
    ax.minorticks_off()
    ax.set_xticks(ratio_ticks(*frame), [f"{t:g}" for t in ratio_ticks(*frame)])
    ax.set_xlim(*frame)
    name_rows(ax, [_name(c) for c in rows], fontsize=8)
    reference, candidate = sides(a.reference, a.candidate)
    transport = "" if "/" in a.reference else ", same transport"
    ax.set_xlabel(
        f"images/s of {candidate} over images/s of {reference}{transport}, paired by block\n"
        f"(left of 1: {reference} faster; right: {candidate})"
    )
    work = ", ".join([workload(a), *rows[0].variant])
    subtitle = f"{work}; settings: {rows[0].settings}; shaded: equivalent within {rule(margin)}"
    title = marked(a, rows[0].variant, f"{candidate} against {reference}: {tally(rows)}")
    dots = "Small dots: each block's own ratio, the first block on top."
    notes = [dots] if any(e.shown for e in found) else []
    notes += [f"{said}." for said in dict.fromkeys(said for c in rows for said in c.of_one_arm)]
    caption(a, figure, title, subtitle, notes, found, frame)
    return figure


def _order(c: Comparison) -> tuple[object, ...]:
    curve = CURVES.index(c.curves[0])
    return transport_order(c.transport), curve, c.world_size, c.samples_per_rank


def _name(c: Comparison) -> str:
    point = f"{ranks(c.world_size)}, {c.samples_per_rank} per rank"
    return f"{'primary: ' if c.primary else ''}{point}\n{c.transport}: {', '.join(c.curves)}"
