"""The calibration's section of the report: its tables, and what a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from plots.analyse.nodes import (
    DRIFT_LIMIT,
    FLOOR,
    MAX_SCORE,
    MIN_NODES,
    MOST,
    Calibrated,
)
from plots.read.calibrations import WHEN, Calibration
from plots.report.columns import Column, column
from plots.report.format import count, interval, percent, rate, ratio

SHOWN = 24  # nodes, the slowest first; the rest are in the file


def _flag(word: str) -> Callable[[bool], str]:
    return lambda raised: word if raised else "-"


NODES = (
    column("node", "node"),
    column("samples_per_step", "images per step"),
    column("images_per_s", "images/s, median", rate),
    column("relative", "of the median node", percent),
    column("score", "modified z", lambda z: f"{z:.1f}"),
    column("calibrations", "calibrations"),
    column("slow", "flag", _flag("slow")),
)

DRIFT = (
    column("job", "job"),
    column("allocation", "allocation"),
    column("nodes", "nodes"),
    column("ratio", "end / start", ratio),
    column("most_node", "node that changed most"),
    column("most_ratio", "its end / start", ratio),
    column("warn", "flag", _flag("drift")),
)


def _if_usable(name: str) -> Callable[[Calibration], Any]:
    return lambda one: getattr(one, name) if one.usable else None


CALIBRATIONS = (
    column("job", "job"),
    column("allocation", "allocation"),
    column("when", " or ".join(WHEN)),
    column("node", "node", lambda node: node or "all"),
    column("host"),
    Column(key="samples_per_step", title="", get=_if_usable("samples_per_step")),
    Column(key="images_per_s", title="", get=_if_usable("images_per_s")),
    column("reason", "reason", lambda reason: " ".join(reason.split())),
    column("log"),
)


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
    rule = f"warned of beyond {percent(DRIFT_LIMIT)} where the interval excludes 1"
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
