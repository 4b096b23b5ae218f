"""Every calibration of every node."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.analyse.comparability import EMULATE, usual
from plots.analyse.nodes import FLOOR, MAX_SCORE, MIN_NODES, MOST, Node
from plots.analyse.study import Analysis, workload
from plots.read.calibrations import Calibration
from plots.report.figures.style import GREY, GUIDE, add_titles, legend, name_axes, name_rows, panels
from plots.report.format import clean, count, rule

# black, as colours belong to cells; a ring becomes a disc from a job's start to its end
_BLACK: dict[str, Any] = {"linestyle": "none", "color": "black"}
_ROUND: dict[str, dict[str, Any]] = {
    "start": {"marker": "o", "markersize": 5, "markerfacecolor": "white", **_BLACK},
    "end": {"marker": "D", "markersize": 4.5, **_BLACK},
}
_MOST_NODES = 64  # the slowest; the others are in calibration.csv


def draw(a: Analysis, batch: int) -> Figure:
    """A row for each node, the slowest on top, in it a line from start to end for each job."""
    assert a.calibrated is not None
    judged = [n for n in a.calibrated.nodes if n.samples_per_step == batch]
    nodes = judged[:_MOST_NODES]
    good = [c for c in a.calibrated.all if c.usable and c.samples_per_step == batch]
    figure, (ax,) = panels(7.2, 1.9 + 0.34 * len(nodes))
    for row, node in enumerate(nodes):
        _draw_node(ax, row, node, [c for c in good if c.unit == node.unit])
    median = nodes[0].images_per_s / nodes[0].relative
    ax.axvline(median, label="median node", **GUIDE)
    ax.axvline(median * (1 - FLOOR), ls="--", label=f"{rule(FLOOR)} below it", **GUIDE)
    for when, style in _ROUND.items():
        ax.plot([], [], label=f"job's {when}", **style)
    name_rows(ax, [f"{clean(n.unit, 40)}{', slow' if n.slow else ''}" for n in nodes])
    for text, node in zip(ax.get_yticklabels(), nodes, strict=True):
        text.set_fontweight("bold" if node.slow else "normal")
    name_axes(ax, "images/s of one plain process on the node", "node")
    thin: Any = {"transform": ax.get_yaxis_transform(), "color": "#e6e6e6", "linewidth": 0.8}
    ax.hlines([row + 0.5 for row in range(len(nodes) - 1)], 0, 1, **thin)
    legend(ax)
    on = count(len({c.node for c in good}), "node"), count(len({c.allocation for c in good}), "job")
    bad = sum(not c.usable for c in a.calibrated.all)
    counted = f"n = {count(len(good), 'calibration')}, {', '.join(on)}; {bad} failed or missing"
    slow = (
        f"Slow: median and at least {rule(MOST)} of the calibrations more than {rule(FLOOR)} below "
        f"the median node, and modified z-score below -{MAX_SCORE}."
    )
    each = "one plain process on each node of a job, all at once"
    subtitle = f"{each}; {batch} images per step; {workload(a)}"
    title, drifting = _title(judged), sum(bool(job.warn) for job in a.calibrated.jobs)
    if drifting:
        title += f"; a node drifts in {drifting} of {count(len(a.calibrated.jobs), 'job')}"
    slept = [((EMULATE, c.facts.get(EMULATE, usual(EMULATE))),) for c in good]
    add_titles(a, figure, slept, title, subtitle, [slow], counted)
    return figure


def _draw_node(ax: Axes, row: int, node: Node, calibrations: list[Calibration]) -> None:
    if node.slow:
        ax.axhspan(row - 0.5, row + 0.5, color="#E69F00", alpha=0.25, linewidth=0)
    jobs = list(dict.fromkeys(c.allocation for c in calibrations))
    for i, job in enumerate(jobs):
        rates = {c.when: c.images_per_s for c in calibrations if c.allocation == job}
        at = row + 0.6 * ((i + 0.5) / len(jobs) - 0.5)
        ax.plot(list(rates.values()), [at] * len(rates), color=GREY, linewidth=0.8, zorder=2)
        for when, images_per_s in rates.items():
            ax.plot([images_per_s], [at], zorder=3, **_ROUND[when])


def _title(judged: list[Node]) -> str:
    slow = [n for n in judged if n.slow]
    named = [f"{clean(n.unit, 40)} at {100 * n.relative:.0f} % of the median node" for n in slow]
    if slow:
        return f"Slow nodes: {', '.join(named)}"
    few = f"not judged below {MIN_NODES} nodes"
    return f"Calibration: {few if len(judged) < MIN_NODES else f'no slow node among {len(judged)}'}"
