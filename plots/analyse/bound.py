"""The exchange alone beside training: what scaling would be if none of it, or all, were hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.study import stats
from bench.study.collectives import Measured
from bench.study.definition import Point
from bench.study.points import NotCompared, Table, by_point, describe
from plots.analyse.scaling import distributed

_LEAST = 3  # sizes of a line: one through two always fits


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What scaling would be if none of an exchange alone, or all of it, were hidden."""

    point: Point
    curve: str
    gradient_bytes: int
    exchange_seconds: float
    visible_efficiency: float
    visible_speedup: float
    hidden_efficiency: float


def bounds(
    table: Table, runs: pd.DataFrame, measured: Sequence[Measured], missing: list[NotCompared]
) -> Iterator[Bound]:
    """Yield a bound of every distributed point whose cell and ranks have a log of its processor.

    `exchange_seconds` are of one all-reduce of all gradients, on the fitted line. T, from which
    efficiencies follow, is a step of the plain process; of strong scaling, its share of a rank.
    """
    logs = {(m.cell, m.ranks): m for m in measured}
    for curve, point, plain in distributed(table):
        log = logs.get((point.cell, point.world_size))
        if log is None or plain not in table.blocks:
            continue
        rows = next(rows for p, rows in by_point(runs) if p == point)
        pair = f"{curve}: {describe(point)} against all-reduces alone"
        cpus = {cpu for one in rows["facts"] if (cpu := one.get("cpu")) is not None}
        size = rows["gradient_bytes"].iloc[0]
        exchange = _seconds(log, size)
        if cpus - {log.machine}:
            reason = f"cpu: {', '.join(sorted(cpus | {log.machine}))}"
            missing.append(NotCompared(pair, reason))
        elif exchange is None:
            reason = f"no all-reduce of {size:,.0f} bytes lies on a fitted line"
            missing.append(NotCompared(pair, reason))
        else:
            seconds = [m.step_seconds for m in table.blocks[plain].values()]
            alone = stats.geometric_mean(seconds).value
            compute = alone if curve == "weak" else alone / point.world_size
            visible = compute / (compute + exchange)
            yield Bound(
                point=point,
                curve=curve,
                gradient_bytes=int(size),
                exchange_seconds=exchange,
                visible_efficiency=visible,
                visible_speedup=visible * point.world_size,
                hidden_efficiency=compute / max(compute, exchange),
            )


def _seconds(log: Measured, size: float) -> float | None:
    """Estimate an all-reduce's seconds; None outside the measured sizes, or where none is known."""
    lines = fit([(t.bytes, t.median_s) for t in log.of("all_reduce")])
    for (first, last), (latency_s, s_per_byte) in lines:
        if first <= size <= last:
            return latency_s + s_per_byte * size
    return None


def fit(times: Sequence[tuple[float, float]]) -> list[tuple[tuple[float, float], Sequence[float]]]:
    """Fit one line to small sizes and one to large, parted where both fit best; one line to few.

    Takes (bytes, seconds) by rising bytes; returns each line's first and last bytes, its latency in
    seconds and its seconds per byte, neither below zero. Hockney's model (1994), by least relative
    squares: a microsecond counts as much as a second.
    """
    from scipy.optimize import nnls  # which takes half a second to import

    cuts = range(_LEAST, len(times) - _LEAST + 1)
    ways = [[times[:cut], times[cut:]] for cut in cuts] or [[times]]
    candidates = []
    for way in ways:
        lines, lost = [], 0.0
        for part in way:
            size, seconds = np.array(part, float).T
            columns = np.stack([1 / seconds, size / seconds], axis=1)
            scale = columns.max(axis=0)  # many orders of magnitude apart
            line, rest = nnls(columns / scale, np.ones(len(part)))
            lines.append(((size[0], size[-1]), line / scale))
            lost += rest**2
        candidates.append((lost, lines))
    return min(candidates, key=lambda candidate: candidate[0])[1]
