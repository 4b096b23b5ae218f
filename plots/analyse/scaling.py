"""Throughput, and weak and strong scaling against a named baseline: pure functions of points."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability, variants
from plots.analyse.points import CURVES, BlockMean, NotCompared, Point, Table, describe
from plots.read.calibrations import Calibration

# nodes of a job may be of several kinds: a calibration is of the same ones
_SAME_NODES_MAY_DIFFER = (*comparability.OF_THE_POINT, *comparability.EXCHANGE, "cpu")


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """One point of one curve: geometric means over blocks with their t intervals."""

    curve: str
    point: Point
    images_per_s: Estimate
    step_seconds: Estimate
    runs: int
    flags: tuple[str, ...]
    input_share: float
    busy_share: float | None


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """One point against a one-rank baseline."""

    curve: str
    point: Point
    kind: str  # common: a plain process; own: the cell's one rank; same nodes: their calibration
    baseline: Point
    baseline_images_per_s: Estimate
    efficiency: Estimate  # T(p0)/T(p) for weak scaling, that over p for strong
    speedup: Estimate  # efficiency times p
    step_overhead_seconds: float | None  # T(p) - T(p0); has a meaning for weak scaling only
    paired: bool  # by block
    flags: tuple[str, ...]


def throughput(table: Table) -> Iterator[Throughput]:
    """Every point of every curve, rising along each series."""
    falls = "fewer images/s than the next smaller point"
    for curve in CURVES:
        smaller: dict[object, float] = {}  # images/s of a series' point before
        for point in table.on(curve):
            means = table.blocks[point].values()
            seconds = [m.step_seconds for m in means]
            rate = stats.geometric_mean([point.samples_per_step / s for s in seconds])
            busy = float(np.mean([m.busy_share for m in means]))
            yield Throughput(
                curve=curve,
                point=point,
                images_per_s=rate,
                step_seconds=stats.geometric_mean(seconds),
                runs=sum(m.runs for m in means),
                flags=(falls,) if rate.value < smaller.get(point.series(curve), 0.0) else (),
                input_share=float(np.mean([m.input_share for m in means])),
                busy_share=None if math.isnan(busy) else busy,
            )
            smaller[point.series(curve)] = rate.value


def size(curve: str, point: Point) -> int:
    """What grows along a curve."""
    return point.samples_per_rank if curve == "batch" else point.world_size


def efficiency(table: Table) -> Iterator[Scaled | NotCompared]:
    """Every distributed point against the common and its own one-rank baseline."""
    for curve, point, plain in distributed(table):
        one_rank = point._replace(world_size=1, samples_per_rank=point.fixed(curve))
        for kind, baseline in (("common", plain), ("own", one_rank)):
            if baseline != point:
                yield from _against(table, curve, point, kind, baseline)


def distributed(table: Table) -> Iterator[tuple[str, Point, Point]]:
    """Curve, point, and the plain process with as many images."""
    for curve in ("weak", "strong"):
        for point in table.on(curve):
            if point.cell != "single":
                alone = variants.beside("single", point.variant)
                yield curve, point, Point("single", 1, point.fixed(curve), alone)


def _against(
    table: Table, curve: str, point: Point, kind: str, baseline: Point
) -> Iterator[Scaled | NotCompared]:
    pair = f"{curve}: {describe(point)} against {describe(baseline)}"
    if baseline not in table.blocks:
        reason = "the baseline was not run, or no run of it is usable"
        yield NotCompared(pair, reason, baseline)
        return
    ignore = (*comparability.OF_THE_POINT, *(comparability.EXCHANGE if kind == "common" else ()))
    point_blocks, baseline_blocks = table.blocks[point].keys(), table.blocks[baseline].keys()
    shared, n = len(point_blocks & baseline_blocks), len(point_blocks)
    # Paired where either has no other block, or two or more make at least half of the point's.
    # Fewer, such as one that was done again, must not stand for all: the others were on other
    # nodes, and the two points are then compared as they are.
    if 0 < shared == min(n, len(baseline_blocks)) or (shared > 1 and 2 * shared >= n):
        blocks, missing = table.shared(baseline, point, ignore, pair)
        yield from missing
        if blocks:
            before, after = table.seconds(baseline, blocks), table.seconds(point, blocks)
            yield _scaled(curve, point, kind, baseline, before, after)
        return
    facts = table.facts(baseline, baseline_blocks), table.facts(point, point_blocks)
    if other := comparability.differences(*facts, (*ignore, *comparability.PER_BLOCK)):
        yield NotCompared(f"{pair}, all blocks", "; ".join(other))
        return
    before, after = table.seconds(baseline, baseline_blocks), table.seconds(point, point_blocks)
    row = _scaled(curve, point, kind, baseline, before, after, paired=False)
    few = "1 shared block" if shared == 1 else f"{shared or 'no'} shared blocks"
    yield replace(row, flags=(*row.flags, f"Welch's interval: {few}"))


def same_nodes(good: Iterable[Calibration], table: Table) -> Iterator[Scaled | NotCompared]:
    """Every distributed point against the plain processes that calibrated its nodes in its job.

    Each block is divided by the calibration of its own allocation before blocks meet, so that the
    speed of the nodes a block was given cancels. Step seconds are averaged over the point's nodes,
    and over start and end.
    """
    calibrations: dict[tuple[str, int], list[Calibration]] = defaultdict(list)
    for c in good:
        calibrations[c.allocation, c.samples_per_step].append(c)
    for curve, point, plain in distributed(table):
        pair = f"{curve}: {describe(point)} against the calibration of the same nodes"
        before, after = [], []
        for block, mean in table.blocks[point].items():
            batch = plain.samples_per_step
            alone = _alone(calibrations.get((block.allocation, batch), ()), batch, mean)
            if isinstance(alone, str):
                yield NotCompared(f"{pair}, {block.name}", alone)
            else:
                before.append(alone)
                after.append(mean.step_seconds)
        if before:
            yield _scaled(curve, point, "same nodes", plain, before, after)


def _alone(calibrations: Sequence[Calibration], batch: int, mean: BlockMean) -> float | str:
    """Seconds of a step of one plain process on a block's own nodes, or why they are not known."""
    nodes = {host: [c for c in calibrations if c.host == host] for host in mean.hosts}
    if not calibrations:
        return f"no usable calibration at {batch} images per step"
    if lacking := [host for host, group in nodes.items() if not group]:
        return f"no usable calibration of {', '.join(lacking)}"
    facts = [c.facts for group in nodes.values() for c in group]
    if other := comparability.differences(facts, mean.facts, _SAME_NODES_MAY_DIFFER):
        return "; ".join(other)
    return float(np.mean([np.mean([c.step_seconds for c in group]) for group in nodes.values()]))


def _scaled(
    curve: str,
    point: Point,
    kind: str,
    baseline: Point,
    before: Sequence[float],
    after: Sequence[float],
    paired: bool = True,
) -> Scaled:
    """From step seconds of the baseline and the point; paired, they are of the same blocks."""
    weak, p = curve == "weak", point.world_size
    if paired:
        ratio = stats.paired_ratio(numerator=before, denominator=after).estimate
    else:
        ratio = stats.welch_ratio(numerator=before, denominator=after)
    gained = ratio if weak else ratio.times(1 / p)
    overhead = float(np.exp(np.mean(np.log(after))) - np.exp(np.mean(np.log(before))))
    return Scaled(
        curve=curve,
        point=point,
        kind=kind,
        baseline=baseline,
        baseline_images_per_s=stats.geometric_mean([baseline.samples_per_step / s for s in before]),
        efficiency=gained,
        speedup=gained.times(p),
        step_overhead_seconds=overhead if weak else None,
        paired=paired,
        flags=("above 100 %",) if gained.value > 1 else (),
    )
