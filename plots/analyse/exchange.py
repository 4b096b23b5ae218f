"""What the exchange of gradients costs, by one method for every cell: parts of a step and twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.record.events import PARTS
from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability, variants
from plots.analyse.points import (
    BlockMean,
    NotCompared,
    Point,
    PointRow,
    Table,
    describe,
)

SHOWN = ("input", "forward", "backward", "waiting", "reducing", "optimiser")  # parts, in order
_MAY_DIFFER = ("observe", "hostnames", "affinity", *comparability.PER_BLOCK)
_OTHER_WORK = (*comparability.VARIED, "bucket_mib", "exchange_bytes")  # in which twins may differ


@dataclass(frozen=True)
class Exchange:
    """All of it; any may be empty. A row's estimates are in seconds of a step."""

    breakdowns: list[PointRow]  # the parts of observed steps, and steps that were not observed
    costs: list[PointRow]  # three numbers for one exchange; None where the runs are not there
    overlaps: list[PointRow]  # with the exchange beside the backward pass, and after it


def examine(table: Table, observed: Table, missing: list[NotCompared]) -> Exchange | None:
    """Examine the points of undisturbed and observed runs; None where a folder has no such runs."""
    exchange = Exchange(
        breakdowns=list(_breakdowns(table, observed, missing)),
        costs=list(_costs(table, observed, missing)),
        overlaps=list(_overlaps(table, missing)),
    )
    return exchange if any(vars(exchange).values()) else None


def _breakdowns(table: Table, observed: Table, missing: list[NotCompared]) -> Iterator[PointRow]:
    """Split exposed time: `waiting` till the slowest rank's last gradient, `reducing` after it."""
    for point in sorted(observed.blocks):
        means = observed.blocks[point].values()
        plain = table.blocks.get(point, {})
        watched = observed.facts(point, observed.blocks[point])
        facts = table.facts(point, plain) if plain else []
        if other := comparability.differences(watched, facts, _MAY_DIFFER):
            pair = f"{describe(point)}, observed, against the same undisturbed"
            missing.append(NotCompared(pair, "; ".join(other)))
            plain = {}
        undisturbed = [mean.step_seconds for mean in plain.values()]
        seconds: dict[str, Estimate | None] = {
            f"{name}_seconds": stats.arithmetic_mean([mean.parts[name] for mean in means])
            for name in SHOWN
        }
        whole = stats.arithmetic_mean([sum(m.parts[p] for p in PARTS) for m in means])
        alone = stats.geometric_mean(undisturbed) if undisturbed else None
        yield PointRow(point, seconds | {"step_seconds": whole, "undisturbed_seconds": alone})


def _costs(table: Table, observed: Table, missing: list[NotCompared]) -> Iterator[PointRow]:
    """Subtract seconds without the exchange from those with: `inflation` of the backward pass, and
    `difference` of steps that were not observed.
    """
    for point in sorted(table.blocks.keys() | observed.blocks.keys()):
        without = _twin(point, "exchange")
        if point.cell == "single" or ("exchange", "off") in point.variant:
            continue
        exposed = [mean.parts["exposed"] for mean in observed.blocks.get(point, {}).values()]
        seconds = {
            "exposed_seconds": exposed,
            "inflation_seconds": _differences(observed, point, without, _backward, missing),
            "difference_seconds": _differences(table, point, without, _step, missing),
        }
        if any(seconds.values()):
            each = {k: stats.arithmetic_mean(v) if v else None for k, v in seconds.items()}
            yield PointRow(point, each)


def _overlaps(table: Table, missing: list[NotCompared]) -> Iterator[PointRow]:
    """Compare blocking with overlapped, paired by block; `ratio` is blocking over overlapped."""
    for point in sorted(table.blocks):
        blocking = _twin(point, "overlap")
        if blocking is None or blocking not in table.blocks:
            continue
        pair = f"{describe(point)} against {describe(blocking)}"
        if blocks := table.shared(point, blocking, _OTHER_WORK, pair, missing):
            seconds = {
                "overlapped_seconds": stats.geometric_mean(table.seconds(point, blocks)),
                "blocking_seconds": stats.geometric_mean(table.seconds(blocking, blocks)),
                "ratio": table.paired(blocking, point, blocks).estimate,
            }
            yield PointRow(point, seconds)


def _twin(point: Point, field: str) -> Point | None:
    """Return the point that differs in nothing but that `field` is off; None without a twin."""
    variant = variants.off(point.variant, field)
    return None if variant is None else point._replace(variant=variant)


def _differences(
    table: Table,
    a: Point,
    b: Point | None,
    seconds: Callable[[BlockMean], float],
    missing: list[NotCompared],
) -> list[float]:
    """Subtract `b`'s seconds from `a`'s by block, where their work differs only in the exchange."""
    if b is None or a not in table.blocks or b not in table.blocks:
        return []
    pair = f"{describe(a)} against {describe(b)}"
    blocks = table.shared(a, b, _OTHER_WORK, pair, missing)
    return [seconds(table.blocks[a][x]) - seconds(table.blocks[b][x]) for x in blocks]


def _backward(mean: BlockMean) -> float:
    return mean.parts["backward"]


def _step(mean: BlockMean) -> float:
    return mean.step_seconds
