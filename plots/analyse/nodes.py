"""What plain processes on every node, at the start and end of a job, say of nodes and drift.

They ran on the same nodes as the runs between them, one on each node, or on each GPU where a node
has several, all at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability
from plots.analyse.points import NotCompared, PointRow, Table
from plots.analyse.scaling import same_nodes
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
DRIFT_LIMIT = 0.02  # as for a run's own level, see steady_state.py


@dataclass(frozen=True, kw_only=True)
class Node:
    """Throughput of one node, or of one of its GPUs, in steps of one size."""

    node: str
    unit: str  # the node, and which GPU of it
    samples_per_step: int
    images_per_s: float  # median of its calibrations
    relative: float  # to the median over all units
    score: float | None  # modified z; None where half of the nodes agree to the last digit
    calibrations: int
    slow: bool


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Images/s at the end over the start of one job."""

    job: str
    allocation: str
    nodes: int  # or GPUs
    ratio: float  # geometric mean over them
    most_node: str  # that changed most
    most_ratio: float
    warn: bool | None  # whether that is beyond FLOOR and noise; None: noise not known


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What all calibrations of a study say."""

    all: tuple[Calibration, ...]
    nodes: list[Node]
    jobs: list[Drift]
    drift: Estimate | None  # over jobs
    scaling: list[PointRow]  # against the same nodes
    missing: list[NotCompared]  # points of which that could not be said

    @property
    def slow(self) -> list[str]:
        return sorted({n.node for n in self.nodes if n.slow})

    @property
    def drifts(self) -> bool:
        """Whether jobs got slower or faster as a whole: beyond 2 %, and the interval excludes 1."""
        d = self.drift
        if d is None or d.low is None or d.high is None:
            return False
        return _off(d.value, DRIFT_LIMIT) and not d.low <= 1 <= d.high


def calibrate(calibrations: Sequence[Calibration], table: Table) -> Calibrated:
    """All that `calibrations` say, and where they are silent."""
    checked = _set_mixed_aside(calibrations)
    good = [c for c in checked if c.usable]
    jobs = list(_drift(good))
    missing: list[NotCompared] = []
    return Calibrated(
        all=(*checked, *_absent(checked, table)),
        nodes=sorted(_nodes(good), key=lambda n: (n.samples_per_step, n.relative, n.unit)),
        jobs=jobs,
        drift=stats.geometric_mean([d.ratio for d in jobs]) if jobs else None,
        scaling=list(same_nodes(good, table, missing)),
        missing=missing,
    )


def _set_mixed_aside(calibrations: Sequence[Calibration]) -> list[Calibration]:
    """Only equal work is comparable from node to node: a batch's minority gives no number."""
    batches: dict[int, list[Calibration]] = defaultdict(list)
    for c in calibrations:
        if c.usable:
            batches[c.samples_per_step].append(c)
    aside: dict[int, str] = {}
    for group in batches.values():
        works = [comparability.work_of(c.facts) for c in group]
        others = zip(group, comparability.against_most(works), strict=True)
        aside |= {id(c): f"work differs from the other calibrations: {d}" for c, d in others if d}
    return [replace(c, reason=aside.get(id(c), c.reason)) for c in calibrations]


def _absent(calibrations: Sequence[Calibration], table: Table) -> list[Calibration]:
    """Rounds of which nothing is known, in jobs that have another round or runs."""
    places = {block.allocation: "" for blocks in table.blocks.values() for block in blocks}
    places |= {c.allocation: c.job for c in calibrations if c.job}
    rounds = {(c.allocation, c.when) for c in calibrations}
    reason = "not there: the job ended before it, or is still running"
    return [
        Calibration(job=job, allocation=place, when=when, reason=reason)
        for place, job in places.items()
        for when in WHEN
        if place and (place, when) not in rounds
    ]


def _nodes(good: Iterable[Calibration]) -> Iterator[Node]:
    """A node is compared with others in equal work only: of one batch."""
    batches: dict[int, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for c in good:
        batches[c.samples_per_step][c.node, c.unit].append(c.images_per_s)
    for batch, rates in batches.items():
        typical = {unit: float(np.median(values)) for unit, values in rates.items()}
        logs = np.log(list(typical.values()))
        median = float(np.median(logs))
        spread = float(np.median(np.abs(logs - median)))
        for (node, unit), rate in typical.items():
            below = math.log(rate) - median
            score = 0.6745 * below / spread if spread else None  # None: the floor decides
            outlying = len(typical) >= MIN_NODES and (score is None or score < -MAX_SCORE)
            low = float(np.mean(np.log(rates[node, unit]) - median < math.log1p(-FLOOR)))
            yield Node(
                node=node,
                unit=unit,
                samples_per_step=batch,
                images_per_s=rate,
                relative=math.exp(below),
                score=score,
                calibrations=len(rates[node, unit]),
                slow=outlying and below < math.log1p(-FLOOR) and low >= MOST,
            )


def _drift(good: Iterable[Calibration]) -> Iterator[Drift]:
    """Nodes of a job share what changes around them, so a job is one observation."""
    rates: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for c in good:
        rates.setdefault((c.job, c.allocation), {}).setdefault(c.unit, {})[c.when] = c.images_per_s
    jobs = {
        place: {x: math.log(r["end"] / r["start"]) for x, r in units.items() if len(r) == len(WHEN)}
        for place, units in rates.items()
    }
    for (job, allocation), logs in jobs.items():
        if not logs:
            continue
        most = max(logs, key=lambda node: abs(logs[node]))
        others = [list(x.values()) for place, x in jobs.items() if place != (job, allocation)]
        limit = change_limit([x for node, x in logs.items() if node != most], others)
        ratio = math.exp(logs[most])
        yield Drift(
            job=job,
            allocation=allocation,
            nodes=len(logs),
            ratio=math.exp(float(np.mean(list(logs.values())))),
            most_node=most,
            most_ratio=ratio,
            warn=None if limit is None else abs(logs[most]) >= limit and _off(ratio, FLOOR),
        )


def change_limit(beside: Sequence[float], other_jobs: Sequence[Sequence[float]]) -> float | None:
    """The log ratio that the node of a job that changed most reaches by noise in ALPHA of jobs.

    By Student's t on all other nodes, around the mean of each one's job, at a level over the job's
    nodes, as the largest of many is large by chance. None without two other nodes in one job.
    """
    groups = [beside, *other_jobs]
    sd, freedom = stats.pooled_sd(groups), sum(max(0, len(group) - 1) for group in groups)
    return None if sd is None else sd * stats.quantile(stats.ALPHA / (1 + len(beside)), freedom)


def _off(ratio: float, limit: float) -> bool:
    return abs(math.log(ratio)) > math.log1p(limit)
