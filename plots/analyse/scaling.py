"""Throughput, and weak and strong scaling against a named baseline: pure functions of points by
block.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability
from plots.analyse.blocks import ALL_BLOCKS, Block, block_name
from plots.analyse.points import (
    CURVES,
    NO_SETTINGS,
    NotCompared,
    Point,
    Table,
    describe,
    shared_blocks,
)


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Images/s of one point of one curve; `step_seconds` is its inverse times the images of a
    step.
    """

    curve: str
    point: Point
    images_per_s: Estimate
    step_seconds: Estimate
    runs: int
    flags: tuple[str, ...]
    input_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """One point against a one-rank baseline: `common` is the plain single process, `own` the cell's
    own one rank, `same nodes` the plain process that calibrated the point's own nodes in its own
    job.

    `efficiency` is T(p0)/T(p) for weak scaling and that over p for strong; `speedup` is efficiency
    times p; `step_overhead_seconds` is T(p) - T(p0), which has a meaning for weak scaling only.
    """

    curve: str
    point: Point
    kind: str
    baseline: Point
    baseline_images_per_s: Estimate
    efficiency: Estimate
    speedup: Estimate
    step_overhead_seconds: float | None
    paired: bool
    flags: tuple[str, ...]


def throughput(table: Table) -> list[Throughput]:
    """Images/s of every point of every curve: geometric mean over blocks with its t interval."""
    rows = []
    for curve in CURVES:
        for point in table.on(curve):
            means = table.blocks[point].values()
            images_per_s = stats.geometric_mean(
                [point.samples_per_step / m.step_seconds for m in means]
            )
            seconds = stats.geometric_mean([m.step_seconds for m in means])
            shares = [m.input_share for m in means]
            waiting = (
                None if None in shares else float(np.mean([s for s in shares if s is not None]))
            )
            rows.append(
                Throughput(
                    curve=curve,
                    point=point,
                    images_per_s=images_per_s,
                    step_seconds=seconds,
                    runs=sum(m.runs for m in means),
                    flags=(),
                    input_share=waiting,
                )
            )
    return [replace(r, flags=_flags(_before(r, rows), r)) for r in rows]


def size(curve: str, point: Point) -> int:
    """What grows along a curve."""
    return point.samples_per_rank if curve == "batch" else point.world_size


def _before(row: Throughput, rows: list[Throughput]) -> Throughput | None:
    """The next smaller point of the same series; rows are in rising order."""

    def series(r: Throughput) -> tuple[object, ...]:
        return r.curve, r.point.variant, r.point.settings, r.point.cell, r.point.fixed(r.curve)

    smaller = [
        r
        for r in rows
        if series(r) == series(row) and size(r.curve, r.point) < size(row.curve, row.point)
    ]
    return smaller[-1] if smaller else None


def _flags(before: Throughput | None, row: Throughput) -> tuple[str, ...]:
    falls = before is not None and row.images_per_s.value < before.images_per_s.value
    return ("not monotone: fewer images/s than the next smaller point",) if falls else ()


def efficiency(table: Table) -> tuple[list[Scaled], list[NotCompared]]:
    """Weak and strong scaling of every distributed point against the common and its own one-rank
    baseline.
    """
    rows: list[Scaled] = []
    missing: list[NotCompared] = []
    for curve in ("weak", "strong"):
        for point in table.on(curve):
            batch = point.fixed(curve)
            alone = comparability.without_exchange(point.variant)
            baselines = {
                "common": Point(NO_SETTINGS, "single", 1, batch, alone),
                "own": point._replace(world_size=1, samples_per_rank=batch),
            }
            for kind, baseline in baselines.items():
                if point.cell == "single" or (kind == "own" and point == baseline):
                    continue
                found, reasons = _scaled(table, curve, point, kind, baseline)
                rows += [found] if found else []
                missing += reasons
    return rows, missing


def _scaled(
    table: Table, curve: str, point: Point, kind: str, baseline: Point
) -> tuple[Scaled | None, list[NotCompared]]:
    what = f"{curve}: {describe(point)} against {describe(baseline)}"
    if baseline not in table.blocks:
        reason = "the baseline was not run, or no run of it is usable"
        return None, [NotCompared(what, reason, baseline)]
    ignore = (*comparability.OF_THE_POINT, *(comparability.EXCHANGE if kind == "common" else ()))
    before, after, differ = shared_blocks(table, baseline, point, ignore)
    shared, paired = _pairing(table.blocks[baseline].keys(), table.blocks[point].keys())
    if not paired:
        before, after = (
            [m.step_seconds for m in table.blocks[p].values()] for p in (baseline, point)
        )
        everywhere = [
            f for p in (baseline, point) for m in table.blocks[p].values() for f in m.facts
        ]
        differ = {
            ALL_BLOCKS: comparability.differences(
                everywhere, (), (*ignore, *comparability.PER_BLOCK)
            )
        }
    missing = [
        NotCompared(f"{what}, {block_name(b)}", "; ".join(d)) for b, d in differ.items() if d
    ]
    if not before or (missing and not paired):
        return None, missing
    ratio = (
        stats.paired_ratio(numerator=before, denominator=after).estimate
        if paired
        else stats.welch_ratio(numerator=before, denominator=after)
    )
    row = scaled(
        curve=curve,
        point=point,
        kind=kind,
        baseline=baseline,
        before=before,
        after=after,
        ratio=ratio,
        paired=paired,
    )
    how = (
        f"{shared or 'no'} block{'s' if shared > 1 else ''} shared in one allocation: Welch's "
        f"interval"
    )
    return row if paired else replace(row, flags=(*row.flags, how)), missing


def _pairing(baseline: Set[Block], point: Set[Block]) -> tuple[int, bool]:
    """How many blocks two points share in one allocation, and whether they are compared block by
    block.

    They are where either has no other block, or two or more make at least half of the point's.
    Fewer, such as one that was done again, must not stand for all: the others were on other nodes,
    and the two points are then compared as they are.
    """
    shared = len(baseline & point)
    whole = 0 < shared == min(len(baseline), len(point))
    return shared, whole or (shared > 1 and 2 * shared >= len(point))


def scaled(
    *,
    curve: str,
    point: Point,
    kind: str,
    baseline: Point,
    before: Sequence[float],
    after: Sequence[float],
    ratio: Estimate,
    paired: bool,
) -> Scaled:
    """Efficiency and speed-up that follow from step seconds of the baseline and the point, and
    their ratio T(p0)/T(p).
    """
    p = point.world_size
    e = ratio if curve == "weak" else ratio.times(1 / p)
    rate = stats.geometric_mean([baseline.samples_per_step / s for s in before])
    overhead = (
        None
        if curve == "strong"
        else float(np.exp(np.mean(np.log(after))) - np.exp(np.mean(np.log(before))))
    )
    flags = ("above 100 %",) if e.value > 1 else ()
    return Scaled(
        curve=curve,
        point=point,
        kind=kind,
        baseline=baseline,
        baseline_images_per_s=rate,
        efficiency=e,
        speedup=e.times(p),
        step_overhead_seconds=overhead,
        paired=paired,
        flags=flags,
    )
