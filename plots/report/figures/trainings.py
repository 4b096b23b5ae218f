"""Accuracy against epochs and seconds, and the share of trainings at the target against seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench.study.points import ranks
from bench.study.rows import Training
from bench.study.words import rule
from plots.analyse.study import Analysis
from plots.analyse.trainings import Trained
from plots.report.figures.style import GUIDE, caption, in_order, legend, look, panels
from plots.report.labels import line_label, page_arm

_FAINT = 0.25  # opacity: lines of trainings lie on one another
_FAR = 60  # percent: an epoch below it is left of where trainings differ


def accuracy(a: Analysis, rows: Sequence[Trained]) -> Figure:
    """Draw accuracy against epochs and seconds; with a target, also the share that reached it.

    One training of each cell is bold; where possible, its seed is the same in all cells.
    """
    targets = sorted({row.target for row in rows if row.target is not None})
    n = 2 + bool(targets)
    figure, grid = panels(n, 1, 1.6, names=len(rows))
    axes = [ax for (ax,) in grid]
    cells = in_order(line_label(a, row.point) for row in rows)
    rows = sorted(rows, key=lambda row: cells.index(line_label(a, row.point)))
    for row in rows:
        name = line_label(a, row.point)
        style = look(name, cells)
        del style["elinewidth"], style["capsize"]  # which are of bars
        _draw_cell(axes, row, rows[0].usual, name, style)
    least = min(100 * share for row in rows for t in row.trainings for share in t.accuracies)
    ends = min(100 * t.accuracies[-1] for row in rows for t in row.trainings)
    cut = least - 2 < _FAR < ends
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
    for done in axes[2:]:
        done.set_ylim(-3, 103)
    legend(figure)
    first, world = rows[-1].point, max(row.point.world_size for row in rows)
    names = " and ".join(map(rule, targets))
    title = f"Training to {names} right" if names else "Accuracy of trainings"
    words = [f"{first.global_batch} images per step", page_arm(a, first)]
    notes = [
        f"{', '.join(filter(None, words))}. A line a training, each from a seed of its own; with "
        f"markers: the one of median time of {rows[0].point.cell}, in every cell. Seconds leave "
        "the judging out.",
        f"Accuracies below {_FAR} % are not drawn." if cut else "",
        f"n = {sum(len(row.trainings) for row in rows)} trainings.",
    ]
    points = [row.point for row in rows]
    caption(a, figure, points, f"{title}, {ranks(world)}", [*filter(None, notes)])
    return figure


def _draw_cell(
    axes: Sequence[Axes], row: Trained, usual: Training, name: str, style: dict[str, Any]
) -> None:
    """Draw a cell's trainings, one with the seed of `usual` in bold; on axes[2], the share done."""
    same = (t for t in row.trainings if (t.seed, t.index) == (usual.seed, usual.index))
    chosen = next(same, row.usual)
    faint = style | {"marker": "", "linewidth": 0.8, "alpha": _FAINT, "zorder": 1.5}
    bold = style | {"linewidth": 1.6, "markersize": 0.7 * style["markersize"]}
    for training in row.trainings:
        shares = [100 * share for share in training.accuracies]
        line = bold if training is chosen else faint
        named = {"label": name} if training is chosen else {}
        axes[0].plot(range(1, 1 + len(shares)), shares, **(line | named))
        axes[1].plot(training.seconds, shares, **line)
    at = sorted(t.seconds[-1] for t in row.trainings if t.reached)
    done = [100 * (i + 1) / len(row.trainings) for i in range(len(at))]
    small = style | {"markersize": 0.6 * style["markersize"], "linewidth": 1.3}
    for ax in axes[2:]:  # a step up at each that is done; those never done keep it below 100 %
        ax.plot([0.0, *at], [0.0, *done], drawstyle="steps-post", **small)
