"""What a reader of the page must know of slow nodes and of drift."""

from __future__ import annotations

from collections import Counter

from plots.analyse.nodes import DRIFT_LIMIT, FLOOR, MAX_SCORE, MIN_NODES, MOST, Calibrated
from plots.report.format import count, interval, percent, ratio, rule


def findings(c: Calibrated) -> list[str]:
    """First things first; each rule stands beside what it found."""
    bad = sum(not one.usable for one in c.all)
    usable = f"usable: {count(len(c.all) - bad, 'calibration')}"
    return [_slow(c), *_drift(c), usable + (f", **{bad} failed or are missing**." if bad else ".")]


def _slow(c: Calibrated) -> str:
    rules = (
        f"slow is a node whose median is more than {percent(FLOOR)} below the median node, as is "
        f"{rule(MOST)} of its calibrations, with a modified z-score below -{MAX_SCORE} (Iglewicz & "
        f"Hoaglin 1993); judged from {MIN_NODES} nodes on, each batch apart"
    )
    sizes = Counter(n.samples_per_step for n in c.nodes)
    judged = {n.node for n in c.nodes if sizes[n.samples_per_step] >= MIN_NODES}
    rest = len({n.node for n in c.nodes} - judged)
    of = f"{len(judged)}, {rest} not judged" if judged and rest else f"{len(judged)}"
    if not c.slow:
        return f"Slow nodes: {f'none of {of}' if judged else f'not judged of {rest}'} ({rules})."
    slow = [f"`{n.node}` at {percent(n.relative)} of the median node" for n in c.nodes if n.slow]
    exclude = f"--exclude={','.join(c.slow)}"
    cure = f'an option of sbatch, or `extra = ["{exclude}"]` under [access] of the site'
    found = f"**Slow nodes: {len(c.slow)} of {of}**: {'; '.join(slow)} ({rules})."
    return f"{found} Keep them out with `{exclude}`: {cure}."


def _drift(c: Calibrated) -> list[str]:
    if c.drift is None:
        known = "no node has a usable calibration at the start and at the end of one job"
        return [f"Drift: not known, {known}."]
    found = (
        f"Drift inside jobs, images/s at the end over the start: {interval(c.drift, ratio)}, n = "
        f"{c.drift.n} jobs (warned of beyond {percent(DRIFT_LIMIT)} where the interval excludes 1)."
    )
    if c.drifts:
        cause = "Runs late in a block met other conditions; their order is random, so this is noise"
        found = f"**Warning:** {found} {cause}."
    warned = [f"{d.allocation}: `{d.most_node}` {ratio(d.most_ratio)}" for d in c.jobs if d.warn]
    jobs = f"{len(warned)} of {len(c.jobs)} jobs a node changed by more than {percent(FLOOR)}"
    return [found] + ([f"**Warning:** in {jobs}: {'; '.join(warned)}."] if warned else [])
