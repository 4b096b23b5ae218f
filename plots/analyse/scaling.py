"""Throughput, scaling efficiency and gains of arms (conditions of a study), from a point table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.study import comparability, stats
from bench.study.comparison import may_differ
from bench.study.definition import Point, Study
from bench.study.points import CURVES, NotCompared, Table, describe, fixed, series
from bench.study.stats import Estimate

# from a process alone, which exchanges nothing
_BASELINE_MAY_DIFFER = (
    *comparability.OF_THE_POINT,
    *comparability.EXCHANGE,
    comparability.OWN_CODE,
)


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Speed and resources of a point on a curve. Estimates are geometric means over launches."""

    point: Point
    curve: str
    images_per_s: Estimate
    step_seconds: Estimate
    runs: int
    flags: tuple[str, ...]
    input_share: float  # of the windows' time
    busy_share: float | None
    rank_memory_bytes: Estimate | None
    device_memory_bytes: Estimate | None
    flops_per_s_and_rank: Estimate | None
    flop_utilisation: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Efficiency and speed-up of a point on a scaling curve, against a one-rank baseline."""

    point: Point
    curve: str
    kind: str  # common: a plain process; own: the cell's one rank
    baseline: Point
    baseline_images_per_s: Estimate
    efficiency: Estimate
    speedup: Estimate
    step_overhead_seconds: float | None  # of weak scaling
    paired: bool
    flags: tuple[str, ...]


def throughput(table: Table) -> Iterator[Throughput]:
    """Yield the throughput of each curve's points by rising size; flag a fall of images/s."""
    falls = "fewer images/s than the next smaller point"
    for curve in CURVES:
        smaller: dict[object, float] = {}  # images/s of a series' point before
        for point in table.on(curve):
            means = table.launches[point].values()
            seconds = [m.step_seconds for m in means]
            rate = stats.geometric_mean([point.global_batch / s for s in seconds])
            busy = float(np.mean([m.busy_share for m in means]))
            yield Throughput(
                point=point,
                curve=curve,
                images_per_s=rate,
                step_seconds=stats.geometric_mean(seconds),
                runs=sum(m.runs for m in means),
                flags=(falls,) if rate.value < smaller.get(series(point, curve), 0.0) else (),
                input_share=float(np.mean([m.input_share for m in means])),
                busy_share=None if math.isnan(busy) else busy,
                **resources_of_point([m.resources for m in means], rate, point.world_size),
            )
            smaller[series(point, curve)] = rate.value


def resources_of_point(
    launches: Sequence[Mapping[str, float]], rate: Estimate, world_size: int
) -> dict[str, Estimate | None]:
    """Estimate a point's memory in bytes, FLOP/s per rank and FLOP utilisation (1 = peak).

    `launches` holds each launch's resources by name, `rate` the images/s of all ranks. A value is
    None if a launch lacks it. Utilisation is of the stated peak (Chowdhery et al. 2022).
    """

    def mean(name: str) -> Estimate | None:
        # of some launches it would stand beside an n that is not its own
        values = [launch[name] for launch in launches if name in launch]
        return stats.geometric_mean(values) if len(values) == len(launches) else None

    flops, peak = mean("flops_per_image"), mean("peak_flops_per_s")
    achieved = rate.times(flops.value / world_size) if flops else None
    return {
        "rank_memory_bytes": mean("rank_memory_bytes"),
        "device_memory_bytes": mean("device_memory_bytes"),
        "flops_per_s_and_rank": achieved,
        "flop_utilisation": achieved.times(1 / peak.value) if achieved and peak else None,
    }


def efficiency(table: Table, missing: list[NotCompared]) -> Iterator[Efficiency]:
    """Yield efficiencies of each point: against `single`, and against its own cell on one rank."""
    for curve, point, plain in distributed(table):
        one_rank = point._replace(world_size=1, batch_per_rank=fixed(point, curve))
        for kind, baseline in (("common", plain), ("own", one_rank)):
            if baseline != point:
                yield from _against(table, curve, point, kind, baseline, missing)


def distributed(table: Table) -> Iterator[tuple[str, Point, Point]]:
    """Yield (curve, point, baseline) for each point of a scaling curve, except those of `single`.

    The baseline, `single`, has the images per step of one of the point's ranks (weak), or of all of
    them together (strong). It may not have run.
    """
    for curve in ("weak", "strong"):
        for point in table.on(curve):
            if point.cell != "single":
                arm = table.plain_arm(point)
                yield curve, point, Point("single", arm, 1, fixed(point, curve))


def _against(
    table: Table,
    curve: str,
    point: Point,
    kind: str,
    baseline: Point,
    missing: list[NotCompared],
) -> Iterator[Efficiency]:
    """Yield a point's efficiency against a baseline, or append to `missing` why there is none.

    With step times T on p ranks and T0 of the baseline, efficiency is T0 / T (weak scaling) or
    T0 / (p T) (strong). Speed-up is p times the efficiency. Only weak scaling has an overhead,
    T - T0. Times are paired by launch if enough launches hold both points.
    """
    pair = f"{curve}: {describe(point)} against {describe(baseline)}"
    if baseline not in table.launches:
        reason = "the baseline was not run, or no run of it is usable"
        missing.append(NotCompared(pair, reason, baseline))
        return
    ignore = _BASELINE_MAY_DIFFER if kind == "common" else comparability.OF_THE_POINT
    of_baseline, of_point = [*table.launches[baseline]], [*table.launches[point]]
    shared, n = len({*of_baseline} & {*of_point}), len(of_point)
    # Paired where either has no other launch, or two or more make at least half of the point's.
    # Fewer, such as one that was done again, must not stand for all: the others were on other
    # nodes, and the two points are then compared as they are.
    paired = 0 < shared == min(n, len(of_baseline)) or (shared > 1 and 2 * shared >= n)
    if paired:
        of_baseline = of_point = table.shared(baseline, point, ignore, pair, missing)
        if not of_point:
            return
    else:
        facts = table.facts(baseline, of_baseline) + table.facts(point, of_point)
        if other := comparability.differences(facts, (*ignore, *comparability.PER_LAUNCH)):
            missing.append(NotCompared(f"{pair}, all launches", "; ".join(other)))
            return
    before, after = table.seconds(baseline, of_baseline), table.seconds(point, of_point)
    ratio = stats.welch_ratio(numerator=before, denominator=after)
    if paired:
        ratio = stats.paired_ratio(numerator=before, denominator=after).estimate
    weak, p = curve == "weak", point.world_size
    gained = ratio.times(1 if weak else 1 / p)
    few = "1 shared launch" if shared == 1 else f"{shared or 'no'} shared launches"
    flags = ["above 100 %"] * (gained.value > 1) + [f"Welch's interval: {few}"] * (not paired)
    overhead = float(np.exp(np.mean(np.log(after))) - np.exp(np.mean(np.log(before))))
    yield Efficiency(
        point=point,
        curve=curve,
        kind=kind,
        baseline=baseline,
        baseline_images_per_s=stats.geometric_mean([baseline.global_batch / s for s in before]),
        efficiency=gained,
        speedup=gained.times(p),
        step_overhead_seconds=overhead if weak else None,
        paired=paired,
        flags=tuple(flags),
    )


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Ratio of a point's images/s to those of the same cell and size in another arm."""

    point: Point
    baseline: Point
    ratio: Estimate


def gains(table: Table, study: Study, missing: list[NotCompared]) -> Iterator[Gain]:
    """Yield each point's gain in images/s over the same cell and size in another arm.

    The point's arm names the other as `over`. A study that compares arms of one cell has no gains.
    """
    for point in table.launches if study.reference != study.candidate else ():
        baseline = point._replace(arm=study.over(point.arm) or point.arm)
        if baseline == point or baseline not in table.launches:
            continue
        pair = f"{describe(point)} against {baseline.arm}"
        ignore = may_differ(study, baseline, point)
        if launches := table.shared(baseline, point, ignore, pair, missing):
            ratio = table.paired(baseline, point, launches).estimate
            yield Gain(point=point, baseline=baseline, ratio=ratio)
