"""What the exchange of gradients costs, by one method for every cell: parts of a step and twins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from bench.record.events import PARTS
from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability, variants
from plots.analyse.points import BlockMean, NotCompared, Point, Table, by_point, describe

SHOWN = ("input", "forward", "backward", "waiting", "reducing", "optimiser")  # parts, in order
_OTHER_WORK = (*comparability.VARIED, "bucket_mib", "exchange_bytes")  # in which twins may differ


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Where the time of a step goes at one point, in runs whose steps were observed."""

    point: Point
    step_seconds: Estimate  # the sum of the parts
    input_seconds: Estimate
    forward_seconds: Estimate
    backward_seconds: Estimate
    waiting_seconds: Estimate  # exposed: till the slowest rank had its last gradient
    reducing_seconds: Estimate  # exposed: and from then till all gradients were reduced
    optimiser_seconds: Estimate
    undisturbed_seconds: Estimate | None  # of a step in runs that were not observed


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Three numbers for one exchange; None where the runs for it are not there."""

    point: Point
    exposed_seconds: Estimate | None
    inflation_seconds: Estimate | None  # backward pass: with the exchange minus without
    difference_seconds: Estimate | None  # step: with the exchange minus without, not observed


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """A step whose exchange overlaps the backward pass, and one whose exchange follows it."""

    point: Point
    overlapped_seconds: Estimate
    blocking_seconds: Estimate
    ratio: Estimate  # blocking over overlapped, paired by block


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a framework's own instruments say of a step, by its own words: evidence beside ours."""

    point: Point
    seconds: Mapping[str, Estimate]


@dataclass(frozen=True)
class Exchange:
    """All of it; any may be empty."""

    breakdowns: list[Breakdown]
    costs: list[Cost]
    overlaps: list[Overlap]
    evidence: list[Evidence]


def examine(
    table: Table, observed: Table, framework: pd.DataFrame
) -> tuple[Exchange | None, list[NotCompared]]:
    """From the points of undisturbed and of observed runs; None where a folder has no such runs."""
    rows = [*_breakdowns(table, observed), *_costs(table, observed), *_overlaps(table)]
    missing = [x for x in rows if isinstance(x, NotCompared)]
    exchange = Exchange(
        breakdowns=[x for x in rows if isinstance(x, Breakdown)],
        costs=[x for x in rows if isinstance(x, Cost)],
        overlaps=[x for x in rows if isinstance(x, Overlap)],
        evidence=list(_evidence(framework)),
    )
    return exchange if any(vars(exchange).values()) else None, missing


def _breakdowns(table: Table, observed: Table) -> Iterator[Breakdown | NotCompared]:
    for point in sorted(observed.blocks):
        means = observed.blocks[point].values()
        plain = table.blocks.get(point, {})
        facts = table.facts(point, plain) if plain else []
        may_differ = ("observe", "hostnames", "affinity", *comparability.PER_BLOCK)
        watched = observed.facts(point, observed.blocks[point])
        if other := comparability.differences(watched, facts, may_differ):
            pair = f"{describe(point)}, observed, against the same undisturbed"
            yield NotCompared(pair, "; ".join(other))
            plain = {}
        undisturbed = [mean.step_seconds for mean in plain.values()]
        seconds = {
            f"{name}_seconds": stats.arithmetic_mean([mean.parts[name] for mean in means])
            for name in SHOWN
        }
        yield Breakdown(
            point=point,
            step_seconds=stats.arithmetic_mean([sum(m.parts[p] for p in PARTS) for m in means]),
            undisturbed_seconds=stats.geometric_mean(undisturbed) if undisturbed else None,
            **seconds,
        )


def _costs(table: Table, observed: Table) -> Iterator[Cost | NotCompared]:
    for point in sorted(table.blocks.keys() | observed.blocks.keys()):
        without = _twin(point, "exchange")
        if point.cell == "single" or ("exchange", "off") in point.variant:
            continue
        exposed = [mean.parts["exposed"] for mean in observed.blocks.get(point, {}).values()]
        estimates: list[Estimate | None] = []
        for of, seconds in ((observed, _backward), (table, _step)):
            values, missing = _differences(of, point, without, seconds)
            estimates.append(stats.arithmetic_mean(values) if values else None)
            yield from missing
        if exposed or any(estimates):
            yield Cost(
                point=point,
                exposed_seconds=stats.arithmetic_mean(exposed) if exposed else None,
                inflation_seconds=estimates[0],
                difference_seconds=estimates[1],
            )


def _overlaps(table: Table) -> Iterator[Overlap | NotCompared]:
    for point in sorted(table.blocks):
        blocking = _twin(point, "overlap")
        if blocking is None or blocking not in table.blocks:
            continue
        pair = f"{describe(point)} against {describe(blocking)}"
        blocks, missing = table.shared(point, blocking, _OTHER_WORK, pair)
        yield from missing
        if blocks:
            yield Overlap(
                point=point,
                overlapped_seconds=stats.geometric_mean(table.seconds(point, blocks)),
                blocking_seconds=stats.geometric_mean(table.seconds(blocking, blocks)),
                ratio=table.paired(blocking, point, blocks).estimate,
            )


def _evidence(framework: pd.DataFrame) -> Iterator[Evidence]:
    for point, rows in by_point(framework):
        by_name: dict[str, list[float]] = defaultdict(list)
        for evidence in rows["evidence"]:
            for name, seconds in evidence.items():
                by_name[name].append(seconds)
        yield Evidence(
            point=point, seconds={k: stats.arithmetic_mean(v) for k, v in by_name.items()}
        )


def _twin(point: Point, field: str) -> Point | None:
    """The point that differs in nothing but that `field` is off; None for one without a twin."""
    variant = variants.off(point.variant, field)
    return None if variant is None else point._replace(variant=variant)


def _differences(
    table: Table, a: Point, b: Point | None, seconds: Callable[[BlockMean], float]
) -> tuple[list[float], list[NotCompared]]:
    """Of `a` minus those of `b`, by block, where their work differs in nothing but the exchange."""
    if b is None or a not in table.blocks or b not in table.blocks:
        return [], []
    pair = f"{describe(a)} against {describe(b)}"
    blocks, missing = table.shared(a, b, _OTHER_WORK, pair)
    of_a, of_b = table.blocks[a], table.blocks[b]
    return [seconds(of_a[block]) - seconds(of_b[block]) for block in blocks], missing


def _backward(mean: BlockMean) -> float:
    return mean.parts["backward"]


def _step(mean: BlockMean) -> float:
    return mean.step_seconds
