"""How accurate trainings became, against epochs and seconds, and how many were done by when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench.study.points import ranks
from bench.study.words import rule
from plots.analyse.study import Analysis
from plots.analyse.trainings import Trained
from plots.report.axes import in_order, look, preset
from plots.report.figures.style import GUIDE, caption, legend, panels
from plots.report.findings import line_label, page_arm

_FAR = 60  # percent: an epoch below it is left of where trainings differ
_KEPT = ("color", "marker", "markersize", "markerfacecolor", "linestyle", "zorder")


def accuracy(a: Analysis, rows: Sequence[Trained]) -> Figure:
    """Draw accuracy against epochs and seconds, a line a training; where there is a target, draw
    the share of trainings that have reached it.
    """
    targets = sorted({row.target for row in rows if row.target is not None})
    n = 2 + bool(targets)
    shape = (n, 1, 1.6) if preset().narrow else (1, n, 2.6)
    figure, grid = panels(*shape, names=len(rows), share_y=False)
    axes = [ax for line in grid for ax in line]
    cells = in_order(line_label(a, row.point) for row in rows)
    for row in sorted(rows, key=lambda row: cells.index(line_label(a, row.point))):
        name = line_label(a, row.point)
        whole = look(name, cells)
        style: dict[str, Any] = {key: whole[key] for key in _KEPT}
        # lines of trainings lie on one another
        line = style | {"linewidth": 1.0, "markersize": 0.5 * style["markersize"], "alpha": 0.6}
        for i, training in enumerate(row.trainings):
            shares = [100 * share for share in training.accuracies]
            axes[0].plot(range(1, 1 + len(shares)), shares, label="" if i else name, **line)
            axes[1].plot(training.seconds, shares, **line)
        # a step up at each training that is done; trainings never done keep it below 100 %
        ends = sorted(t.seconds[-1] for t in row.trainings if t.reached)
        done = [100 * i / len(row.trainings) for i in range(len(ends) + 1)]
        for ax in axes[2:]:
            ax.plot([0.0, *ends], done, drawstyle="steps-post", **line | {"alpha": 1.0})
    least = min(100 * share for row in rows for t in row.trainings for share in t.accuracies)
    last = min(100 * t.accuracies[-1] for row in rows for t in row.trainings)
    cut = least - 2 < _FAR < last
    for ax in axes[:2]:
        for target in targets:
            ax.axhline(100 * target, ls="--", **GUIDE)
        ax.set_ylim(bottom=_FAR if cut else max(0, least - 2))
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    y_names = "held-out right (%)", "", "at the target (%)"
    for ax, y_name in zip(axes, y_names, strict=False):
        ax.set_xlabel("epochs" if ax is axes[0] else "seconds of training")
        ax.set_ylabel(y_name)
        ax.set_xlim(left=0)
    for ax in axes[2:]:
        ax.set_ylim(-3, 103)
    legend(figure)
    first, world = rows[-1].point, max(row.point.world_size for row in rows)
    names = " and ".join(map(rule, targets))
    title = f"Training to {names} right" if names else "Accuracy of trainings"
    words = [f"{first.global_batch} images per step", page_arm(a, first)]
    notes = [
        f"{', '.join(filter(None, words))}. A line a training, each of another seed. Seconds "
        "leave the judging out.",
        f"Accuracies below {_FAR} % are not drawn." if cut else "",
        f"n = {sum(len(row.trainings) for row in rows)} trainings.",
    ]
    points = [row.point for row in rows]
    caption(a, figure, points, f"{title}, {ranks(world)}", [*filter(None, notes)])
    return figure
