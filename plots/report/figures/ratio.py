"""Candidate over reference: against ranks, and one row per point with every block's own ratio."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.verdict import Comparison
from bench.study.points import CURVES, ranks
from plots.analyse.scaling import size
from plots.analyse.study import Analysis, workload
from plots.report.answer import tally, versus
from plots.report.axes import Extent, apart, look, preset, ratio_ticks, reach, transport_order
from plots.report.figures.style import (
    GREY,
    GUIDE,
    caption,
    keep_x_label_inside,
    legend,
    mark,
    most_marks,
    name_axes,
    name_rows,
    panels,
    scale_axes,
    spread,
    wrapped,
)
from plots.report.format import ratio, rule, short
from plots.report.verdicts import over, sides, word

_VERDICTS = 3  # in a title
_LINE_IN = 0.134  # of a row's name
_NAME_IN = 2.5  # the length of such a line on a page


def draw(a: Analysis, pages: Sequence[Sequence[Comparison]]) -> Figure:
    """Draw a forest plot: a row per point, the margin shaded, 1 marked, blocks from top to bottom.

    `pages`: the rows of each variant, in this order. What differs between pages
    stands at each row, what does not in the subtitle.
    """
    rows = [c for page in pages for c in sorted(page, key=_order)]
    words = [{*page[0].words} for page in pages]
    common = set.intersection(*words)
    names = [_name(c, common) for c in rows]
    row_in = max(0.4, _LINE_IN * max(name.count("\n") + 1.6 for name in names))
    figure, (ax,) = panels(7.2, 1.7 + row_in * len(rows))
    margin, estimates = a.loaded.study.margin, [c.estimate for c in rows]
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#009E73", alpha=0.15, linewidth=0)
    ax.axvline(1, color=GREY, linewidth=1)
    blocks = [b for c in rows for b in c.paired.ratios]
    frame = reach(estimates, 1 / (1 + margin), 1 + margin, *blocks)
    for i, (c, e) in enumerate(zip(rows, estimates, strict=True)):
        style = look(c.candidate, [c.candidate], 6.0)
        if e.shown:  # else `mark` draws them
            spread(ax, i, e.blocks, style)
        mark(ax, [i], [e], frame, style, ratio, axis="x")
        text = f"{short(e, ratio)}{f', n = {e.n}' if e.shown else ''}\n{word(c)}"
        ax.annotate(
            text, (1.01, i), xycoords=("axes fraction", "data"), va="center", fontsize="small"
        )
    _ratio_scale(ax, "x", frame)
    name_rows(ax, names)
    reference, candidate = sides(a.reference, a.candidate)
    transport = "" if "/" in a.reference else ", same transport"
    over_images = f"images/s of {candidate} over images/s of {reference}{transport}"
    sides_of_1 = f"(left of 1: {reference} faster; right: {candidate})"
    name_axes(ax, x_name := f"{over_images}, paired by launch\n{sides_of_1}")
    dots = "Small dots: each launch's own ratio, the first on top."
    notes = [dots] if any(e.shown for e in estimates) else []
    notes += [f"{note}." for note in dict.fromkeys(note for c in rows for note in c.of_one_arm)]
    _entitle(a, figure, rows, common, notes, frame)
    keep_x_label_inside(ax, x_name)
    return figure


def _ratio_scale(ax: Axes, axis: Literal["x", "y"], frame: Extent) -> None:
    """Make an axis logarithmic: half and double are equally far from 1."""
    ticks = ratio_ticks(*frame, most=most_marks(ax) if axis == "x" else 8)
    ax.set(**{f"{axis}scale": "log", f"{axis}lim": frame})
    ax.minorticks_off()
    ax.set(**{f"{axis}ticks": ticks, f"{axis}ticklabels": [f"{t:g}" for t in ticks]})


def _entitle(
    a: Analysis,
    figure: Figure,
    rows: Sequence[Comparison],
    common: Collection[str],
    notes: Sequence[str],
    frame: Extent,
) -> None:
    """Write all verdicts in one title line, and what all rows have in common below it."""
    title = f"{versus(a)}: {tally(rows, most=_VERDICTS)}"
    same = [word for word in rows[0].words if word in common]
    margin = f"shaded: equal within {rule(a.loaded.study.margin)}"
    subtitle = "; ".join([workload(a), *same, margin])
    variants, estimates = [c.variant for c in rows], [c.estimate for c in rows]
    units = " or ".join(dict.fromkeys(c.unit for c in rows))
    caption(a, figure, variants, title, subtitle, notes, estimates, frame, units)


def curves_of(rows: Sequence[Comparison]) -> list[str]:
    """Name the curves along which a ratio is known at several sizes."""
    sizes = {
        curve: {size(curve, c.points[0]) for c in rows if curve in c.curves} for curve in CURVES
    }
    return [curve for curve, values in sizes.items() if len(values) > 1]


def against_size(a: Analysis, rows: Sequence[Comparison]) -> Figure:
    """Draw a panel for each curve, a line for each transport and fixed size; shade the margin."""
    curves = curves_of(rows)
    figure, axes = panels(7.2, 2.7, len(curves))
    margin = a.loaded.study.margin
    reference, candidate = sides(a.reference, a.candidate)
    y_name = f"images/s of {candidate}\nover images/s of {reference}"
    frame = reach([c.estimate for c in rows], 1 / (1 + margin), 1 + margin)
    last: dict[str, list[str]] = defaultdict(list)
    for ax, curve in zip(axes, curves, strict=True):
        ax.axhspan(1 / (1 + margin), 1 + margin, color="#009E73", alpha=0.15, linewidth=0)
        ax.axhline(1, **GUIDE)
        comparisons = sorted((c for c in rows if curve in c.curves), key=_order)
        lines = list(dict.fromkeys(_line(curve, c) for c in comparisons))
        values = [size(curve, c.points[0]) for c in comparisons]
        for i, line in enumerate(lines):
            by_size = {size(curve, c.points[0]): c for c in comparisons if _line(curve, c) == line}
            at = sorted(by_size)
            name = _line_name(curve, line, len({fixed for _, fixed in lines}) > 1)
            cell = by_size[at[0]].candidate
            style = look(cell, [cell], 6.0) | {"label": name}
            estimates = [by_size[x].estimate for x in at]
            mark(ax, apart(at, values, i - (len(lines) - 1) / 2), estimates, frame, style, ratio)
            text = f"{short(estimates[-1], ratio)} at {_place(curve, at[-1])}"
            last[name].append(f"{curve}: {text}" if len(curves) > 1 else text)
        scale_axes(ax, values, frame, log_y=False)
        _ratio_scale(ax, "y", frame)
        x_name = "images per rank" if curve == "batch" else f"ranks ({curve} scaling)"
        name_axes(ax, x_name, y_name if ax is axes[0] else "")
    values_at = {name: "\n".join(texts) for name, texts in last.items()}
    legend(axes[-1], values_at, over(a.reference, a.candidate))
    notes = [f"Paired by launch. Above 1 {candidate} is faster, below {reference}."]
    _entitle(a, figure, rows, rows[0].words, notes, frame)
    return figure


def _line(curve: str, c: Comparison) -> tuple[str, int]:
    """Name the transport, and what stays along the curve."""
    return c.transport, c.points[0].fixed(curve)


def _line_name(curve: str, line: tuple[str, int], several: bool) -> str:
    transport, fixed = line
    unit = {"weak": "images per rank", "strong": "images per step", "batch": "ranks"}[curve]
    return f"{transport}, {fixed} {unit}" if several else transport or "all"


def _place(curve: str, value: int) -> str:
    return f"{value} images per rank" if curve == "batch" else ranks(value)


def _order(c: Comparison) -> tuple[object, ...]:
    curve = CURVES.index(c.curves[0])
    return transport_order(c.transport), curve, c.world_size, c.samples_per_rank


def _name(c: Comparison, common: Collection[str]) -> str:
    point = f"{ranks(c.world_size)}, {c.samples_per_rank} per rank"
    words = [f"{c.transport}: {', '.join(c.curves)}"]
    words += [word for word in c.words if word not in common]
    return "\n".join(
        [
            f"{'primary: ' if c.primary else ''}{point}",
            wrapped("; ".join(words), _NAME_IN * preset().letters),
        ]
    )
