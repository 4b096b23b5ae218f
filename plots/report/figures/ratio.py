"""The figure of ratios of images/s: a row per comparison, with interval and each launch's ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench.study.comparison import Comparison
from bench.study.points import CURVES, ranks
from bench.study.words import rule, sentence, word
from plots.analyse.study import Analysis
from plots.report.figures.style import (
    GREY,
    bars_explained,
    caption,
    look,
    mark,
    name_rows,
    panels,
    reach,
)
from plots.report.format import ratio, short
from plots.report.labels import over, sides, transport_order


def draw(a: Analysis, comparisons: Sequence[Comparison]) -> Figure:
    """Draw a forest plot: a row per comparison, a shaded margin, a line at 1, a dot per launch.

    Each row is labelled by what differs between rows. What all rows share stands at the foot.
    """

    def order(c: Comparison) -> tuple[object, ...]:
        return transport_order(c.transport), c.arm, CURVES.index(c.curves[0]), c.points

    rows = sorted(comparisons, key=order)
    words = [_words(c) for c in rows]
    common = set.intersection(*map(set, words)) - ({*words[0][:2]} if not rows[1:] else set())
    figure, ((ax,),) = panels(1, 1, 0.35 + 0.62 * len(rows))
    margin, estimates = a.loaded.study.margin, [c.estimate for c in rows]
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#009E73", alpha=0.15, linewidth=0)
    ax.axvline(1, color=GREY, linewidth=1)
    launches = [b for c in rows for b in c.paired.ratios]
    frame = reach(estimates, 1 / (1 + margin), 1 + margin, *launches)
    ax.set(xscale="log", xlim=frame)
    for i, (c, e) in enumerate(zip(rows, estimates, strict=True)):
        style = look(c.candidate, [c.candidate], 6.0)
        if e.shown:  # else `mark` draws them; from top to bottom a drift is seen as a slope
            step = 0.3 / max(1, e.n - 1)
            at = [i - 0.15 + step * k for k in range(len(e.launches))]
            small: Any = {"markersize": 2.6, "alpha": 0.55, "markeredgewidth": 0}
            ax.plot(e.launches, at, "o", color=style["color"], **small)
        mark(ax, [i], [e], style, ratio, axis="x")
    names = [", ".join(word for word in each if word not in common) for each in words]
    # the faster side over the other, as in the first sentence of the page
    values = [sentence(c) if c.decides else f"{short(c.estimate, ratio)}: {word(c)}" for c in rows]
    name_rows(ax, [*zip(names, values, strict=True)])
    ax.minorticks_off()
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter("{x:g}")
    reference, candidate = sides(a)
    ax.set_xlabel(f"images/s of {candidate} over {reference}\nbelow 1 {reference} is faster")
    units = " or ".join(dict.fromkeys(c.unit for c in rows))
    same = [word for word in words[0] if word in common]
    notes = [
        f"{', '.join(same)}. Shaded: equal within {rule(margin)}.",
        bars_explained(estimates, units),
        *(["Small dots: launches, the first on top."] if any(e.shown for e in estimates) else []),
    ]
    caption(a, figure, rows, f"ratio of images/s, {over(a)}", notes)
    return figure


def _words(c: Comparison) -> list[str]:
    """Return what tells a comparison from others: ranks, transport, batch, curves and arm."""
    words = [ranks(c.world_size), c.transport, f"{c.batch_per_rank} images per rank"]
    return [*filter(None, [*words, "/".join(c.curves), c.arm])]
