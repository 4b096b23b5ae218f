"""Costs of the gradient exchange, measured and predicted.

In observed steps each part is timed (observe=breakdown). If two points cannot be compared, a
function appends the pair and the reason to the caller's list `missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.record.events import PARTS
from bench.study import comparability, stats
from bench.study.collectives import Measured
from bench.study.comparability import LaunchId
from bench.study.definition import Point
from bench.study.points import LaunchMean, NotCompared, Table, by_point, describe
from bench.study.stats import Estimate
from plots.analyse.scaling import distributed

_LEAST = 3  # sizes of a line: one through two always fits
SHOWN = ("input", "forward", "backward", "waiting", "reducing", "optimiser")  # parts, in order
_MAY_DIFFER = ("observe", "hostnames", "affinity", *comparability.PER_LAUNCH)
_OTHER_WORK = (*comparability.VARIED, *comparability.BUCKETS)  # in which twins may differ


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """Mean seconds of a step's parts, of that step, and of it untimed (None: not measured)."""

    point: Point
    parts: Mapping[str, Estimate]  # those of SHOWN
    step_seconds: Estimate
    undisturbed_seconds: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds that the exchange adds to a point's step. A field is None if no run can tell it."""

    point: Point
    exposed_seconds: Estimate | None
    inflation_seconds: Estimate | None
    difference_seconds: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Step times of a point: with the exchange during the backward pass, and after (blocking)."""

    point: Point
    overlapped_seconds: Estimate
    blocking_seconds: Estimate
    ratio: Estimate  # blocking over overlapped


def breakdowns(table: Table, observed: Table, missing: list[NotCompared]) -> Iterator[StepParts]:
    """Yield each point's step parts, from `observed`, with its undisturbed step from `table`."""
    for point in sorted(observed.launches):
        means = observed.launches[point].values()
        unwatched = table.twin(point, observed.work(point))
        plain = {} if unwatched is None else table.launches[unwatched]
        watched = observed.facts(point, observed.launches[point])
        facts = [] if unwatched is None else table.facts(unwatched, plain)
        if other := comparability.differences(watched + facts, _MAY_DIFFER):
            pair = f"{describe(point)}, observed, against the same undisturbed"
            missing.append(NotCompared(pair, "; ".join(other)))
            plain = {}
        undisturbed = [mean.step_seconds for mean in plain.values()]
        yield StepParts(
            point=point,
            parts={x: stats.arithmetic_mean([m.parts[x] for m in means]) for x in SHOWN},
            step_seconds=stats.arithmetic_mean([sum(m.parts[p] for p in PARTS) for m in means]),
            undisturbed_seconds=stats.geometric_mean(undisturbed) if undisturbed else None,
        )


def costs(table: Table, observed: Table, missing: list[NotCompared]) -> Iterator[Cost]:
    """Yield each point's costs: what the exchange adds to a step, in seconds.

    Exposed time and inflation (of the backward pass) come from `observed`, the difference (of the
    whole step) from `table`. Inflation and difference compare launches with and without exchange.
    """
    watched = {table.twin(p, observed.work(p)) or p: p for p in observed.launches}
    for point in sorted(table.launches.keys() | watched.keys()):
        work = (table if point in table.launches else observed).work(point)
        if point.cell == "single" or work.get("exchange") == "off":
            continue
        exposed, inflation = list[float](), list[float]()
        if seen := watched.get(point):
            exposed = [mean.parts["exposed"] for mean in observed.launches[seen].values()]
            inflation = _differences(observed, seen, lambda mean: mean.parts["backward"], missing)
        difference = _differences(table, point, lambda mean: mean.step_seconds, missing)
        if exposed or inflation or difference:
            yield Cost(
                point=point,
                exposed_seconds=_mean(exposed),
                inflation_seconds=_mean(inflation),
                difference_seconds=_mean(difference),
            )


def _mean(seconds: Sequence[float]) -> Estimate | None:
    return stats.arithmetic_mean(seconds) if seconds else None


def overlaps(table: Table, missing: list[NotCompared]) -> Iterator[Overlap]:
    """Yield step times of each point that ran overlapped and blocking, and their paired ratio."""
    for point in sorted(table.launches):
        blocking, launches = _without(table, point, "overlap", missing)
        if launches:
            yield Overlap(
                point=point,
                overlapped_seconds=stats.geometric_mean(table.seconds(point, launches)),
                blocking_seconds=stats.geometric_mean(table.seconds(blocking, launches)),
                ratio=table.paired(blocking, point, launches).estimate,
            )


def _without(
    table: Table, point: Point, field: str, missing: list[NotCompared]
) -> tuple[Point, list[LaunchId]]:
    """Return a point's twin with `field` off, and the launches (maybe none) to compare them in."""
    work = table.work(point) if point in table.launches else {}
    if work.get(field) != "on" or (other := table.twin(point, {**work, field: "off"})) is None:
        return point, []
    pair = f"{describe(point)} against {describe(other)}"
    return other, table.shared(point, other, _OTHER_WORK, pair, missing)


def _differences(
    table: Table, a: Point, seconds: Callable[[LaunchMean], float], missing: list[NotCompared]
) -> list[float]:
    """Return what the exchange adds to `seconds`, for each launch that ran with and without it."""
    b, launches = _without(table, a, "exchange", missing)
    return [seconds(table.launches[a][x]) - seconds(table.launches[b][x]) for x in launches]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Predicted efficiencies of a point: with its exchange fully exposed, and fully overlapped."""

    point: Point
    curve: str
    gradient_bytes: int
    exchange_seconds: float
    visible_efficiency: float
    hidden_efficiency: float


def bounds(
    table: Table, runs: pd.DataFrame, measured: Sequence[Measured], missing: list[NotCompared]
) -> Iterator[Bound]:
    """Yield predicted efficiencies of each point that has a baseline and a log of all-reduces.

    The baseline is one process without exchange. Its step time, divided by the ranks for strong
    scaling, is the compute time. Lines fitted to the log give the exchange's time. A point goes to
    `missing` if no line covers its gradient bytes, or if the log is from another processor.
    """
    logs = {(m.cell, m.ranks): m for m in measured}
    for curve, point, plain in distributed(table):
        log = logs.get((point.cell, point.world_size))
        if log is None or plain not in table.launches:
            continue
        rows = next(rows for p, rows in by_point(runs) if p == point)
        cpus = {cpu for one in rows["facts"] if (cpu := one.get("cpu")) is not None}
        size = rows["gradient_bytes"].iloc[0]
        lines = fit([(t.bytes, t.median_s) for t in log.timed])
        exchanges = [
            latency_s + s_per_byte * size
            for (first, last), (latency_s, s_per_byte) in lines
            if first <= size <= last
        ]
        if cpus - {log.machine} or not exchanges:
            reason = f"no all-reduce of {size:,.0f} bytes lies on a fitted line"
            if cpus - {log.machine}:
                reason = f"cpu: {', '.join(sorted(cpus | {log.machine}))}"
            pair = f"{curve}: {describe(point)} against all-reduces alone"
            missing.append(NotCompared(pair, reason))
            continue
        seconds = [m.step_seconds for m in table.launches[plain].values()]
        alone = stats.geometric_mean(seconds).value
        compute = alone if curve == "weak" else alone / point.world_size
        yield Bound(
            point=point,
            curve=curve,
            gradient_bytes=int(size),
            exchange_seconds=exchanges[0],
            visible_efficiency=compute / (compute + exchanges[0]),
            hidden_efficiency=compute / max(compute, exchanges[0]),
        )


def fit(times: Sequence[tuple[float, float]]) -> list[tuple[tuple[float, float], Sequence[float]]]:
    """Fit one line to small sizes and one to large sizes; fit a single line to fewer than 6 sizes.

    `times` are (bytes, seconds) by rising bytes. A line is ((first bytes, last bytes), (latency in
    seconds, seconds per byte)); latency and slope are never negative. The split is where both lines
    fit best by least squares of relative errors. The model is Hockney's (1994).
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
