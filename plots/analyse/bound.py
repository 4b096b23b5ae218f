"""The exchange alone beside training: what scaling would be if none of it, or all, were hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from bench.study import stats
from bench.study.collectives import Measured, fit
from plots.analyse.points import NotCompared, Point, Table, by_point, describe
from plots.analyse.scaling import distributed


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One point, and an all-reduce of its gradients that was measured without training."""

    curve: str
    point: Point
    gradient_bytes: int
    exchange_seconds: float  # of one all-reduce of so many bytes, on the fitted line
    visible_efficiency: float  # T(1) / (T(1) + exchange): all of it follows the backward pass
    hidden_efficiency: float  # T(1) / max(T(1), exchange): all of it beside the compute

    @property
    def visible_speedup(self) -> float:
        return self.visible_efficiency * self.point.world_size


def bounds(
    table: Table, runs: pd.DataFrame, measured: Sequence[Measured]
) -> Iterator[Bound | NotCompared]:
    """For every distributed point whose cell and ranks have a log, from the same processor.

    T(1) is a step of the plain process; of strong scaling, its share of a rank.
    """
    logs = {(m.cell, m.ranks): m for m in measured}
    for curve, point, plain in distributed(table):
        log = logs.get((point.cell, point.world_size))
        if log is None or plain not in table.blocks:
            continue
        rows = next(rows for p, rows in by_point(runs) if p == point)
        pair = f"{curve}: {describe(point)} against all-reduces alone"
        cpus = {cpu for one in rows["facts"] if (cpu := one.get("cpu")) is not None}
        if cpus - {log.machine}:
            reason = f"cpu: {', '.join(sorted(cpus | {log.machine}))}"
            yield NotCompared(pair, reason)
            continue
        size = rows["gradient_bytes"].iloc[0]
        exchange = _seconds(log, size)
        if exchange is None:
            yield NotCompared(pair, f"no all-reduce of {size:,.0f} bytes lies on a fitted line")
            continue
        alone = stats.geometric_mean([m.step_seconds for m in table.blocks[plain].values()]).value
        compute = alone if curve == "weak" else alone / point.world_size
        yield Bound(
            curve=curve,
            point=point,
            gradient_bytes=int(size),
            exchange_seconds=exchange,
            visible_efficiency=compute / (compute + exchange),
            hidden_efficiency=compute / max(compute, exchange),
        )


def _seconds(log: Measured, size: float) -> float | None:
    """Of one all-reduce; None outside the sizes that were measured, or where none is known."""
    timed = log.of("all_reduce")
    lines = fit([t.bytes for t in timed], [t.median_s for t in timed])
    return next((x.seconds(size) for x in lines if x.first_bytes <= size <= x.last_bytes), None)
