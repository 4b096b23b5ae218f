"""Every calibration of every node."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from plots.analyse.nodes import FLOOR, MAX_SCORE, MIN_NODES, MOST
from plots.analyse.study import Analysis, machine, workload
from plots.report.figures.captions import add_titles, legend
from plots.report.figures.style import GREY
from plots.report.format import clean, count

# black, as colours belong to cells; a ring becomes a disc from a job's start to its end
_ROUND: dict[str, dict[str, Any]] = {
    "start": {
        "marker": "o",
        "markersize": 5,
        "linestyle": "none",
        "color": "black",
        "markerfacecolor": "white",
    },
    "end": {"marker": "D", "markersize": 4.5, "linestyle": "none", "color": "black"},
}


_MOST_NODES = 64  # the slowest; the others are in calibration.csv


def draw(a: Analysis, batch: int) -> Figure:
    """Every calibration: a row for each node, the slowest on top, in it a line from start to end
    for each job.
    """
    assert a.calibrated is not None
    judged = [n for n in a.calibrated.nodes if n.samples_per_step == batch]
    nodes = judged[:_MOST_NODES]
    good = [c for c in a.calibrated.all if c.usable and c.samples_per_step == batch]
    figure = Figure(figsize=(7.2, 1.9 + 0.34 * len(nodes)))
    ax = figure.subplots()
    for row, node in enumerate(nodes):
        if node.slow:
            ax.axhspan(row - 0.5, row + 0.5, color="#E69F00", alpha=0.25, linewidth=0)
        own = [c for c in good if c.node == node.node]
        jobs = list(dict.fromkeys(c.allocation for c in own))
        for i, job in enumerate(jobs):
            rates = {c.when: c.images_per_s for c in own if c.allocation == job}
            at = row + 0.6 * ((i + 0.5) / len(jobs) - 0.5)
            ax.plot(list(rates.values()), [at] * len(rates), color=GREY, linewidth=0.8, zorder=2)
            for when, images_per_s in rates.items():
                ax.plot([images_per_s], [at], zorder=3, **_ROUND[when])
    median = nodes[0].images_per_s / nodes[0].relative
    ax.axvline(median, color=GREY, linewidth=1.1, zorder=1, label="median node")
    ax.axvline(
        median * (1 - FLOOR),
        color=GREY,
        linewidth=1.1,
        ls="--",
        zorder=1,
        label=f"{100 * FLOOR:g} % below it",
    )
    for when, style in _ROUND.items():
        ax.plot([], [], label=f"job's {when}", **style)
    ax.set_yticks(
        range(len(nodes)), [f"{clean(n.node, 40)}{', slow' if n.slow else ''}" for n in nodes]
    )
    for label_, node in zip(ax.get_yticklabels(), nodes, strict=True):
        label_.set_fontweight("bold" if node.slow else "normal")
    ax.set_ylim(len(nodes) - 0.4, -0.6)
    ax.set_xlabel("images/s of one plain process on the node")
    ax.set_ylabel("node")
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")
    ax.hlines(
        [row + 0.5 for row in range(len(nodes) - 1)],
        0,
        1,
        transform=ax.get_yaxis_transform(),
        color="#e6e6e6",
        linewidth=0.8,
    )
    legend(ax)
    slow = [
        f"{clean(n.node, 40)} at {100 * n.relative:.0f} % of the median node"
        for n in judged
        if n.slow
    ]
    found = (
        f"no slow node among {len(judged)}"
        if len(judged) >= MIN_NODES
        else f"not judged below {MIN_NODES} nodes"
    )
    title = f"Slow nodes: {', '.join(slow)}" if slow else f"Calibration: {found}"
    if drifting := sum(job.warn for job in a.calibrated.jobs):
        title += f"; a node drifts in {drifting} of {count(len(a.calibrated.jobs), 'job')}"
    bad = sum(not c.usable for c in a.calibrated.all)
    of = (
        f"{count(len({c.node for c in good}), 'node')}, "
        f"{count(len({c.allocation for c in good}), 'job')}"
    )
    counted = f"n = {count(len(good), 'calibration')}, {of}; {bad} failed or missing"
    rule = (
        f"Slow: median and at least {100 * MOST:g} % of the calibrations more than "
        f"{100 * FLOOR:g} % below the median node, "
        f"and modified z-score below -{MAX_SCORE}."
    )
    subtitle = (
        f"one plain process on each node of a job, all at once; {batch} images per step; "
        f"{workload(a)}"
    )
    add_titles(figure, title, subtitle, [rule, f"{clean(machine(a.loaded.host), 120)}. {counted}."])
    return figure
