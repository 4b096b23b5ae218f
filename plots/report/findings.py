"""What a reader of the page must know beside its tables, a sentence a line."""

from __future__ import annotations

from collections import Counter

from plots.analyse.comparability import DigestCheck
from plots.analyse.nodes import DRIFT_LIMIT, FLOOR, MAX_SCORE, MIN_NODES, MOST, Calibrated
from plots.analyse.points import ranks
from plots.analyse.study import Analysis
from plots.report.format import count, interval, percent, ratio, rule


def apart(a: Analysis) -> list[str]:
    """Of numbers of runs that are reported apart."""
    means = [mean for blocks in a.table.blocks.values() for mean in blocks.values()]
    facts = [f for mean in means for f in mean.facts]
    rounded = sorted({f.get("compression", "none") for f in facts} - {"none"})
    lines = {
        "Variants are never mixed either: each is compared with itself alone, in rows and figures "
        "of its own.": any(p.variant for p in a.table.blocks),
        "`compile=True` takes away the overlap of the backward pass with an exchange that "
        "gradients' hooks start.": any(f.get("compile") == "True" for f in facts),
        f"`compression={'`, `'.join(rounded)}` rounds gradients on the way: one process rounds "
        "nothing, so only its speed is a baseline.": rounded,
    }
    return [line for line, there in lines.items() if there]


def equal_work(a: Analysis) -> list[str]:
    but = ", and the environment where it says so" if any(c.unequal for c in a.comparisons) else ""
    agreed = f"Every pair that was compared agrees on everything but the framework{but}."
    if a.not_compared:
        agreed = (
            f"Pairs set aside because the work differed, or one side is missing: "
            f"{len(a.not_compared)} (listed above)."
        )
    return [*map(_parameters, a.digests), agreed]


def _parameters(d: DigestCheck) -> str:
    found = f"yes, {count(d.groups, 'group')} of {count(d.runs, 'run')} checked"
    if not d.groups:
        found = "not checked, no block holds two cells that did the same training"
    elif d.mismatches:
        differ = "; ".join(d.mismatches)
        found = f"**NO**, {len(d.mismatches)} of {d.groups} groups differ: {differ}"
    where = ranks(d.world_size)
    return f"All cells of a block ended with bit-identical parameters at {where}: {found}."


def calibration(c: Calibrated) -> list[str]:
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
