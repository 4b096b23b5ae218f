"""The calibration's section of the report, and calibration.csv with every single calibration
unrounded.
"""

from __future__ import annotations

import csv as writer
import io
from collections import Counter

from plots.analyse.nodes import DRIFT, FLOOR, MAX_SCORE, MIN_NODES, MOST, WHEN, Calibrated, Node
from plots.report.format import count, interval, percent, rate, ratio, table

_SHOWN = 24  # nodes, the slowest first; the rest are in the file
_FIELDS = (
    "job",
    "allocation",
    "when",
    "node",
    "host",
    "samples_per_step",
    "images_per_s",
    "reason",
    "log",
)


def csv(c: Calibrated) -> str:
    """One row for each calibration, usable or not."""
    text = io.StringIO()
    rows = writer.writer(text, lineterminator="\n")
    rows.writerow(_FIELDS)
    unknown = {"samples_per_step": "", "images_per_s": ""}
    rows.writerows(
        [unknown.get(f, getattr(one, f)) if one.reason else getattr(one, f) for f in _FIELDS]
        for one in c.all
    )
    return text.getvalue()


def exclude(c: Calibrated) -> str:
    """sbatch's option that keeps slow nodes out."""
    return f"--exclude={','.join(c.slow)}"


def findings(c: Calibrated) -> list[str]:
    """What a reader must know, first things first; each rule stands beside what it found."""
    return [_slow(c), *_drift(c), _missing(c)]


def _slow(c: Calibrated) -> str:
    rule = (
        f"slow is a node whose median is more than {percent(FLOOR)} below the median node, as is "
        f"{100 * MOST:g} % of its "
        f"calibrations, with a modified z-score below -{MAX_SCORE} (Iglewicz & Hoaglin 1993); "
        f"judged from {MIN_NODES} nodes on, each batch apart"
    )
    sizes = Counter(n.samples_per_step for n in c.nodes)
    judged = {n.node for n in c.nodes if sizes[n.samples_per_step] >= MIN_NODES}
    rest = len({n.node for n in c.nodes} - judged)
    more = f", {rest} not judged" if judged and rest else ""
    if c.slow:
        named = "; ".join(
            f"`{n.node}` at {percent(n.relative)} of the median node" for n in c.nodes if n.slow
        )
        cure = (
            f"Keep them out with `{exclude(c)}`: an option of sbatch, or `extra = "
            f'["{exclude(c)}"]` under [access] of the site.'
        )
        return f"**Slow nodes: {len(c.slow)} of {len(judged)}{more}**: {named} ({rule}). {cure}"
    return (
        f"Slow nodes: {f'none of {len(judged)}{more}' if judged else f'not judged of {rest}'} "
        f"({rule})."
    )


def _drift(c: Calibrated) -> list[str]:
    if c.drift is None:
        return [
            "Drift: not known, no node has a usable calibration at the start and at the end of "
            "one job."
        ]
    rule = f"warned of beyond {percent(DRIFT)} where the interval excludes 1"
    lines = [
        f"Drift inside jobs, images/s at the end over the start: {interval(c.drift, ratio)}, n = "
        f"{c.drift.n} jobs ({rule})."
    ]
    if c.drifts:
        lines = [
            f"**Warning:** {lines[0]} Runs late in a block met other conditions; their order is "
            f"random, so this is noise."
        ]
    if warned := [d for d in c.jobs if d.warn]:
        named = "; ".join(f"{d.allocation}: `{d.most_node}` {ratio(d.most_ratio)}" for d in warned)
        lines.append(
            f"**Warning:** in {len(warned)} of {len(c.jobs)} jobs a node changed by more than "
            f"{percent(FLOOR)}: {named}."
        )
    return lines


def _missing(c: Calibrated) -> str:
    usable = sum(one.usable for one in c.all)
    return f"usable: {count(usable, 'calibration')}" + (
        f", **{len(c.all) - usable} failed or are missing**." if usable < len(c.all) else "."
    )


def nodes(c: Calibrated) -> str:
    """The slowest nodes."""
    head = [
        "node",
        "images per step",
        "images/s, median",
        "of the median node",
        "modified z",
        "calibrations",
        "flag",
    ]
    more = (
        [[f"{len(c.nodes) - _SHOWN} more in calibration.csv", *[""] * 6]]
        if len(c.nodes) > _SHOWN
        else []
    )
    return table(head, [*map(_node, c.nodes[:_SHOWN]), *more])


def _node(n: Node) -> list[object]:
    score = "-" if n.score is None else f"{n.score:.1f}"
    return [
        n.node,
        n.samples_per_step,
        rate(n.images_per_s),
        percent(n.relative),
        score,
        n.calibrations,
        "slow" if n.slow else "-",
    ]


def drift(c: Calibrated) -> str:
    """Every job with both rounds."""
    head = [
        "job",
        "allocation",
        "nodes",
        "end / start",
        "node that changed most",
        "its end / start",
        "flag",
    ]
    return table(
        head,
        [
            [
                d.job,
                d.allocation,
                d.nodes,
                ratio(d.ratio),
                d.most_node,
                ratio(d.most_ratio),
                "drift" if d.warn else "-",
            ]
            for d in c.jobs
        ],
    )


def unusable(c: Calibrated) -> str:
    """What failed or is missing, and why."""
    bad = [one for one in c.all if not one.usable]
    rows = [
        [
            one.job or "-",
            one.allocation or "-",
            one.when or "-",
            one.node or "all",
            " ".join(one.reason.split()),
        ]
        for one in bad
    ]
    return table(["job", "allocation", " or ".join(WHEN), "node", "reason"], rows) if bad else ""
