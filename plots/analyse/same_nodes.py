"""Scaling against the plain processes that calibrated a point's own nodes in its own job; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bench.study import stats
from plots.analyse import comparability
from plots.analyse.blocks import Block, block_name
from plots.analyse.points import NO_SETTINGS, BlockMean, NotCompared, Point, Table, describe
from plots.analyse.scaling import Scaled, scaled
from plots.read.calibrations import Calibration

_MAY_DIFFER = (
    *comparability.OF_THE_POINT,
    *comparability.EXCHANGE,
    "cpu",
)  # nodes of a job may be of several kinds: these are the same ones


def scaling_by_block(
    good: Iterable[Calibration], table: Table
) -> tuple[list[Scaled], list[NotCompared]]:
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
                    scaled(
                        curve=curve,
                        point=point,
                        kind="same nodes",
                        baseline=baseline,
                        before=before,
                        after=after,
                        ratio=ratio,
                        paired=True,
                    )
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
