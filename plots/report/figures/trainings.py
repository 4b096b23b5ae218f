"""How accurate trainings became, against epochs and seconds, and how many were done by when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plots.analyse.points import PointRow, ranks
from plots.analyse.study import Analysis, workload
from plots.analyse.trainings import Training
from plots.report.axes import in_order, look
from plots.report.figures.style import GUIDE, add_titles, legend
from plots.report.format import rule, seconds

_FAINT = 0.25  # opacity: lines of trainings lie on one another
_FAR = 60  # percent: an epoch below it is left of where trainings differ


def accuracy(a: Analysis, rows: Sequence[PointRow]) -> Figure:
    """Accuracy against epochs and seconds, with one training drawn bold, the same in every cell;
    where there is a target, the share of trainings that have reached it.
    """
    targets = sorted({row.target for row in rows if row.target is not None})
    figure = Figure(figsize=(8.4 + 2.4 * bool(targets), 3.9))
    panels: list[Axes] = list(figure.subplots(1, 2 + bool(targets)))
    cells = in_order(row.point.cell for row in rows)
    rows = sorted(rows, key=lambda row: cells.index(row.point.cell))
    # one of each cell's own choice would show other seeds as if frameworks learnt differently
    usual = rows[0].usual
    for row in rows:
        same = (t for t in row.trainings if (t.seed, t.index) == (usual.seed, usual.index))
        chosen = next(same, row.usual)
        style = _style(row, cells)
        for training in row.trainings:
            bold = training is chosen
            epochs = range(1, 1 + len(training.seconds))
            named = {"label": row.point.cell} if bold else {}
            _line(panels[0], epochs, training, style | named, bold)
            _line(panels[1], training.seconds, training, style, bold)
        for done in panels[2:]:
            _draw_done(done, row, style)
    least = min(100 * share for row in rows for t in row.trainings for share in t.accuracies)
    ends = min(100 * t.accuracies[-1] for row in rows for t in row.trainings)
    cut = least - 2 < _FAR < ends
    for ax in panels[:2]:
        for target in targets:
            ax.axhline(100 * target, ls="--", **GUIDE)
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=_FAR if cut else max(0, least - 2))
    panels[0].set_xlabel("epochs")
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_ylabel("held-out samples right (%)")
    panels[1].set_xlabel("seconds of training")
    for done in panels[2:]:
        done.set_xlabel("seconds of training")
        done.set_ylabel("trainings at the target (%)")
        done.set_xlim(left=0)
        done.set_ylim(-3, 103)
    heading = "trainings at the target" if targets else ""
    legend(panels[-1], {row.point.cell: _reached(row) for row in rows}, heading)
    first, world = rows[0].point, max(row.point.world_size for row in rows)
    names = " and ".join(map(rule, targets))
    title = f"Training to {names} right: " if names else "Accuracy of trainings: "
    below = f" Accuracies below {_FAR} % are not drawn." if cut else ""
    notes = [
        f"A line a training, each from a seed of its own; with markers: the one of median time of "
        f"{rows[0].point.cell}, in every cell. Seconds leave the judging out.{below}"
    ]
    words = [f"{first.samples_per_step} images per step", *first.words, workload(a)]
    n = sum(len(row.trainings) for row in rows)
    variants, counted = [first.variant], f"n = {n} trainings"
    add_titles(a, figure, variants, title + ranks(world), "; ".join(words), notes, counted)
    return figure


def _style(row: PointRow, cells: Sequence[str]) -> dict[str, Any]:
    whole = look(row.point.cell, cells)
    kept = ("color", "marker", "markersize", "markerfacecolor", "linestyle", "zorder")
    return {name: whole[name] for name in kept}


def _line(
    ax: Axes, along: Sequence[float], training: Training, style: dict[str, Any], bold: bool
) -> None:
    shares = [100 * share for share in training.accuracies]
    faint = style | {"marker": "", "linewidth": 0.8, "alpha": _FAINT, "zorder": 1.5}
    shown = style | {"linewidth": 1.6, "markersize": 0.7 * style["markersize"]}
    ax.plot(along, shares, **(shown if bold else faint))


def _draw_done(ax: Axes, row: PointRow, style: dict[str, Any]) -> None:
    """Steps up at each training that is done; those that never were keep it below 100 %."""
    at = sorted(t.seconds[-1] for t in row.trainings if t.reached)
    shares = [100 * (i + 1) / len(row.trainings) for i in range(len(at))]
    small = style | {"markersize": 0.6 * style["markersize"], "linewidth": 1.3}
    ax.plot([0.0, *at], [0.0, *shares], drawstyle="steps-post", **small)


def _reached(row: PointRow) -> str:
    if row.target is None:
        return f"{len(row.trainings)} trainings"
    share = f"{row.reached} of {len(row.trainings)}"
    return share if row.seconds is None else f"{share}, median {seconds(row.seconds.value)} s"
