"""Calibration: what plain processes on every node, at the start and end of a job, say of nodes,
drift and scaling; pure.

They ran on the same nodes as the runs between them, one rank on each node, all nodes at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability
from plots.analyse.blocks import Block, block_name
from plots.analyse.points import NO_SETTINGS, BlockMean, NotCompared, Point, Table, describe
from plots.analyse.scaling import Scaled, scaled
from plots.read.calibrations import WHEN, Calibration

# Equal GPUs differ by 8 % on average in large systems (Sinha et al., SC'22, arXiv 2208.11035), so a
# rule on the spread alone would name nodes that cost nothing, and a floor alone would name half a
# system.
FLOOR = 0.05
MAX_SCORE = 3.5  # modified z-score, 0.6745 x deviation / MAD (Iglewicz & Hoaglin 1993)
# Share of a node's own calibrations that must be below the floor. Simulated with 5 % of noise in
# each and no slow node, the three rules together then name one in 2 to 4 % of studies of one job,
# and in 0.3 % of those of three; the first two alone in 5 to 7 %, and in 2 to 4 %.
MOST = 0.75
MIN_NODES = 4  # the spread of fewer says nothing: with three it is the smaller of two gaps
DRIFT_LIMIT = 0.02  # as for a run's own level, see steady.py
_MAY_DIFFER = (
    *comparability.OF_THE_POINT,
    *comparability.EXCHANGE,
    "cpu",
)  # nodes of a job may be of several kinds: these are the same ones


@dataclass(frozen=True)
class Node:
    """Throughput of one node: median of its calibrations,
    `relative` to the median over all nodes.
    """

    node: str
    samples_per_step: int
    images_per_s: float
    relative: float
    score: float | None
    calibrations: int
    slow: bool


@dataclass(frozen=True)
class Drift:
    """Images/s at the end over the start of one job: geometric mean over its nodes, and the node
    that changed most.
    """

    job: str
    allocation: str
    nodes: int
    ratio: float
    most_node: str
    most_ratio: float
    warn: bool


@dataclass(frozen=True)
class Calibrated:
    """What all calibrations of a study say; `scaling` is against the same nodes, `missing` what it
    could not be said of.
    """

    all: tuple[Calibration, ...]
    nodes: list[Node]
    jobs: list[Drift]
    drift: Estimate | None
    scaling: list[Scaled]
    missing: list[NotCompared]

    @property
    def slow(self) -> list[str]:
        return sorted({n.node for n in self.nodes if n.slow})

    @property
    def drifts(self) -> bool:
        """Whether the study as a whole got slower or faster inside its jobs: beyond 2 %, and the
        interval excludes 1.
        """
        d = self.drift
        return (
            d is not None
            and d.low is not None
            and d.high is not None
            and _off(d.value, DRIFT_LIMIT)
            and not d.low <= 1 <= d.high
        )


def calibrate(found: Sequence[Calibration], table: Table) -> Calibrated:
    """All that `found` says, and where it is silent."""
    checked = _set_mixed_aside(found)
    good = [c for c in checked if c.usable]
    jobs = _drift(good)
    scaling, missing = _scaling(good, table)
    change = stats.geometric_mean([d.ratio for d in jobs]) if jobs else None
    return Calibrated(
        (*checked, *_absent(checked, table)), _nodes(good), jobs, change, scaling, missing
    )


def _set_mixed_aside(found: Sequence[Calibration]) -> list[Calibration]:
    """Only equal work is comparable from node to node: the minority gives no number,
    batches apart.
    """
    checked: dict[int, Calibration] = {}
    for batch in {c.samples_per_step for c in found if c.usable}:
        group = [i for i, c in enumerate(found) if c.usable and c.samples_per_step == batch]
        for i, other in zip(
            group, comparability.against_most([found[i].facts or {} for i in group]), strict=True
        ):
            if other:
                checked[i] = replace(
                    found[i], reason="work differs from the other calibrations: " + "; ".join(other)
                )
    return [checked.get(i, c) for i, c in enumerate(found)]


def _absent(found: Sequence[Calibration], table: Table) -> list[Calibration]:
    """Rounds of which nothing is known, in jobs that have another round or runs."""
    held = {
        block.allocation: ""
        for blocks in table.blocks.values()
        for block in blocks
        if block.allocation
    }
    held |= {c.allocation: c.job for c in found if c.job}
    rounds = {(c.allocation, c.when) for c in found}
    reason = "not there: the job ended before it, or is still running"
    return [
        Calibration(job=job, allocation=a, when=when, node="", reason=reason)
        for a, job in held.items()
        for when in WHEN
        if (a, when) not in rounds
    ]


def _nodes(good: Iterable[Calibration]) -> list[Node]:
    """Nodes by batch, the slowest first; a node is compared with others in equal work only."""
    batches: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for c in good:
        batches[c.samples_per_step][c.node].append(c.images_per_s)
    return [node for batch, rates in sorted(batches.items()) for node in _judged(batch, rates)]


def _judged(batch: int, rates: Mapping[str, Sequence[float]]) -> list[Node]:
    typical = {node: float(np.median(values)) for node, values in rates.items()}
    logs = np.log(list(typical.values()))
    median = float(np.median(logs))
    spread = float(np.median(np.abs(logs - median)))
    rows = []
    for node, rate in typical.items():
        below = math.log(rate) - median
        score = (
            0.6745 * below / spread if spread else None
        )  # where half of the nodes agree to the last digit, the floor decides
        outlying = len(typical) >= MIN_NODES and (score is None or score < -MAX_SCORE)
        low = np.log(rates[node]) - median < math.log1p(-FLOOR)
        slow = outlying and below < math.log1p(-FLOOR) and float(np.mean(low)) >= MOST
        rows.append(Node(node, batch, rate, math.exp(below), score, len(rates[node]), slow))
    return sorted(rows, key=lambda n: (n.relative, n.node))


def _drift(good: Iterable[Calibration]) -> list[Drift]:
    """Nodes of a job share what changes around them, so a job is one observation, whatever its
    nodes.
    """
    jobs: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for c in good:
        jobs[c.job, c.allocation][c.node][c.when] = c.images_per_s
    rows = []
    for (job, allocation), nodes in jobs.items():
        ratios = {
            node: rate["end"] / rate["start"]
            for node, rate in nodes.items()
            if len(rate) == len(WHEN)
        }
        if ratios:
            ratio = math.exp(float(np.mean(np.log(list(ratios.values())))))
            most = max(ratios, key=lambda node: abs(math.log(ratios[node])))
            rows.append(
                Drift(
                    job,
                    allocation,
                    len(ratios),
                    ratio,
                    most,
                    ratios[most],
                    _off(ratios[most], FLOOR),
                )
            )
    return rows


def _off(ratio: float, limit: float) -> bool:
    return abs(math.log(ratio)) > math.log1p(limit)


def _scaling(good: Iterable[Calibration], table: Table) -> tuple[list[Scaled], list[NotCompared]]:
    """Weak and strong scaling of every distributed point against one plain process on the same
    nodes in the same job.

    Each block is divided by the calibration of its own allocation before blocks meet, so that the
    speed of the nodes a block was given cancels. Step seconds are averaged over the point's nodes,
    and over start and end.
    """
    here: dict[tuple[str, int], dict[str, list[Calibration]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for c in good:
        here[c.allocation, c.samples_per_step][c.host].append(c)
    rows: list[Scaled] = []
    missing: list[NotCompared] = []
    for curve in ("weak", "strong"):
        for point in table.on(curve):
            if point.cell == "single":
                continue
            batch = point.fixed(curve)
            baseline = Point(
                NO_SETTINGS, "single", 1, batch, comparability.without_exchange(point.variant)
            )
            what = f"{curve}: {describe(point)} against the calibration of the same nodes"
            pairs, reasons = _pairs(table.blocks[point], batch, here)
            missing += [
                NotCompared(f"{what}, {block_name(b)}", reason) for b, reason in reasons.items()
            ]
            if pairs:
                before, after = zip(*pairs, strict=True)
                ratio = stats.paired_ratio(numerator=before, denominator=after).estimate
                rows.append(
                    scaled(curve, point, "same nodes", baseline, before, after, ratio, paired=True)
                )
    return rows, missing


def _pairs(
    blocks: Mapping[Block, BlockMean],
    batch: int,
    here: Mapping[tuple[str, int], Mapping[str, Sequence[Calibration]]],
) -> tuple[list[tuple[float, float]], dict[Block, str]]:
    """Seconds of a step on one rank and at the point, block by block; and why a block has no such
    pair.
    """
    pairs, reasons = [], {}
    for block, mean in blocks.items():
        nodes = here.get((block.allocation, batch), {})
        own = [c for host in mean.hosts for c in nodes.get(host, ())]
        if not nodes:
            reasons[block] = f"no usable calibration at {batch} images per step"
        elif lacking := [host for host in mean.hosts if host not in nodes]:
            reasons[block] = f"no usable calibration of {', '.join(lacking)}"
        elif other := comparability.differences(
            [c.facts or {} for c in own], mean.facts, _MAY_DIFFER
        ):
            reasons[block] = "; ".join(other)
        else:
            seconds = [float(np.mean([c.step_seconds for c in nodes[host]])) for host in mean.hosts]
            pairs.append((float(np.mean(seconds)), mean.step_seconds))
    return pairs, reasons
