"""How accurate each training became: against its epochs, and against its seconds."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.analyse.points import ranks
from plots.analyse.study import Analysis, workload
from plots.analyse.trainings import Trained
from plots.report.axes import in_order, look
from plots.report.figures.style import GUIDE, add_titles, legend
from plots.report.format import rule

_FAINT = 0.45  # opacity: lines of trainings lie on one another
_FAR = 60  # percent: an epoch below it is left of where trainings differ


def accuracy(a: Analysis, rows: Sequence[Trained]) -> Figure:
    """A thin line a training, its end filled where it reached the target."""
    figure = Figure(figsize=(8.4, 3.9))
    panels = figure.subplots(1, 2, sharey=True)
    cells = in_order(row.point.cell for row in rows)
    for row in sorted(rows, key=lambda row: cells.index(row.point.cell)):
        _lines(panels[0], row, cells, of_epochs=True)
        _lines(panels[1], row, cells, of_epochs=False)
    targets = sorted({row.target for row in rows if row.target is not None})
    labels = "epochs", "seconds of training, without the judging"
    for ax, label in zip(panels, labels, strict=True):
        for target in targets:
            ax.axhline(100 * target, ls="--", **GUIDE)
        ax.set_xlabel(label)
        ax.set_xlim(left=0)
    least = min(100 * share for row in rows for t in row.trainings for share in t.accuracies)
    panels[0].set_ylim(bottom=max(least - 2, _FAR))
    panels[0].set_ylabel("held-out samples right (%)")
    panels[0].xaxis.get_major_locator().set_params(integer=True)
    legend(panels[1], {_name(row): _reached(row) for row in rows}, "trainings at the target")
    first = rows[0]
    names = " and ".join(map(rule, targets))
    title = f"Training to {names} right" if names else "Accuracy of trainings"
    worlds = sorted({row.point.world_size for row in rows})
    title += f": {' and '.join(map(ranks, worlds))}"
    below = f" Accuracies below {_FAR} % are not drawn." if least - 2 < _FAR else ""
    notes = [f"A line a training, each from a seed of its own; filled end: target reached.{below}"]
    words = [f"{first.point.samples_per_step} images per step", *first.point.variant, workload(a)]
    n = sum(len(row.trainings) for row in rows)
    add_titles(a, figure, title, "; ".join(words), notes, f"n = {n} trainings")
    return figure


def _lines(ax: Axes, row: Trained, cells: Sequence[str], *, of_epochs: bool) -> None:
    style = look(row.point.cell, cells)
    line = {"color": style["color"], "linestyle": style["linestyle"], "alpha": _FAINT}
    for training in row.trainings:
        along = range(1, 1 + len(training.seconds)) if of_epochs else training.seconds
        shares = [100 * share for share in training.accuracies]
        ax.plot(list(along), shares, linewidth=0.9, zorder=2, **line)
        face = style["color"] if training.reached else "white"
        ends = {"marker": style["marker"], "markersize": style["markersize"]}
        label = _name(row) if training is row.trainings[0] else None
        ax.plot(
            [list(along)[-1]],
            shares[-1:],
            color=style["color"],
            markerfacecolor=face,
            linestyle="none",
            label=label,
            zorder=3,
            **ends,
        )


def _name(row: Trained) -> str:
    return f"{row.point.cell}, {ranks(row.point.world_size)}"


def _reached(row: Trained) -> str:
    said = f"{row.reached} of {len(row.trainings)}"
    return said if row.seconds is None else f"{said}, median {row.seconds.value:.3g} s"
