"""A candidate cell against a reference cell, point by point, paired by block: ratio, verdict, price
of knowing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.study import stats
from bench.study.definition import Primary, pairs
from bench.study.stats import Paired, Verdict
from plots.analyse import comparability
from plots.analyse.blocks import Block, block_name
from plots.analyse.points import CURVES, NotCompared, Point, Table, describe, shared_blocks

VISIBLE_EFFECT = 0.02  # the effect whose price in blocks is printed beside every comparison


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Candidate over reference in images/s at one point; above 1 the candidate is faster."""

    reference: str  # cells
    candidate: str
    settings: str
    world_size: int
    samples_per_rank: int
    variant: tuple[str, ...]
    curves: tuple[str, ...]
    paired: Paired
    half_width: float | None  # ratio: 0.01 is 1 %
    blocks_for_visible_effect: int | None
    unequal: tuple[str, ...]  # what one side's environment had by intent and the other's had not
    primary: bool = False
    verdict: Verdict = "too few blocks"  # as decided, with holm_p where there is one
    holm_p: float | None = None  # None: too few blocks, or the primary comparison
    blocks_to_settle: int | None = None

    @property
    def transport(self) -> str:
        """What both sides travel on, else each side's."""
        both = (cell.partition("/")[2] for cell in (self.reference, self.candidate))
        return " and ".join(dict.fromkeys(both))

    @property
    def samples_per_step(self) -> int:
        return self.samples_per_rank * self.world_size

    @property
    def faster(self) -> str:
        """The cell with the larger throughput."""
        return self.candidate if self.paired.ratio > 1 else self.reference

    @property
    def gain(self) -> tuple[float, float, float]:
        """By what share the faster is faster, with the ends of the 95 % interval: 0.07 is 7 %."""
        ratio = self.paired.ratio
        low, high = self.paired.ci95 or (ratio, ratio)
        if ratio > 1:
            return ratio - 1, low - 1, high - 1
        return 1 / ratio - 1, 1 / high - 1, 1 / low - 1


def compare(
    table: Table,
    margin: float,
    primary: Primary | None = None,
    *,
    reference: str,
    candidate: str,
) -> tuple[list[Comparison], list[NotCompared]]:
    """Every point that either side has, paired by block; Holm over all that could be tested.

    `reference` and `candidate` are cells, or backends, which are then compared on each transport.
    The one comparison that was named beforehand is left out of Holm's correction.
    """
    rows: list[Comparison] = []
    missing: list[NotCompared] = []
    for a, b in _pairs(table, reference, candidate):
        what = f"{describe(a)} against {b.cell}"
        if lacking := [p for p in (a, b) if p not in table.blocks]:
            missing.append(NotCompared(what, f"no usable run of {lacking[0].cell}", lacking[0]))
            continue
        seconds_a, seconds_b, differ = shared_blocks(
            table, a, b, (comparability.TUNED, comparability.OWN_ENV)
        )
        missing += [
            NotCompared(f"{what}, {block_name(x)}", "; ".join(d)) for x, d in differ.items() if d
        ]
        missing += [] if differ else [NotCompared(what, "no block holds both")]
        if seconds_a:
            paired = stats.paired_ratio(numerator=seconds_a, denominator=seconds_b)
            used = [x for x, d in differ.items() if not d]
            rows.append(_comparison(table, a, b, paired, used))
    return _decided(_name_primary(rows, primary), margin), missing


def _pairs(table: Table, reference: str, candidate: str) -> list[tuple[Point, Point]]:
    """The points of each two cells that are compared, whether or not both have them."""
    return sorted(
        (point, point._replace(cell=b))
        for a, b in pairs(sorted({p.cell for p in table.blocks}), reference, candidate)
        for point in {p._replace(cell=a) for p in table.blocks if p.cell in (a, b)}
    )


def _name_primary(rows: list[Comparison], primary: Primary | None) -> list[Comparison]:
    """Mark the row that was named; none where that is not exactly one, as several would need a
    correction of their own.
    """
    named = [r for r in rows if primary is not None and _is(r, primary)]
    return [replace(r, primary=len(named) == 1 and r is named[0]) for r in rows]


def _is(row: Comparison, primary: Primary) -> bool:
    asked = {
        "transport": primary.transport,
        "settings": primary.settings,
        "samples_per_rank": primary.batch_per_rank,
    }
    same = all(getattr(row, k) == v for k, v in asked.items() if v is not None)
    return same and row.world_size == primary.world_size and primary.curve in row.curves


def _decided(rows: Sequence[Comparison], margin: float) -> list[Comparison]:
    """Each with its verdict, after Holm's correction over all but the primary one."""
    tested = [r for r in rows if not r.primary and r.paired.n >= stats.MIN_BLOCKS]
    adjusted = stats.holm([r.paired.t_p for r in tested if r.paired.t_p is not None])
    corrected = dict(zip(map(id, tested), adjusted, strict=True))
    decided = []
    for row in rows:
        p = corrected.get(id(row))
        verdict = stats.decide(row.paired, margin, p)
        settle = stats.blocks_to_settle(row.paired, margin) if verdict == "inconclusive" else None
        decided.append(replace(row, verdict=verdict, holm_p=p, blocks_to_settle=settle))
    return decided


def _comparison(
    table: Table, a: Point, b: Point, paired: Paired, used: Sequence[Block]
) -> Comparison:
    ci95, sd = paired.ci95, paired.sd_log
    return Comparison(
        reference=a.cell,
        candidate=b.cell,
        settings=a.settings,
        world_size=a.world_size,
        samples_per_rank=a.samples_per_rank,
        variant=a.variant,
        curves=tuple(c for c in CURVES if c in table.curves[a] | table.curves[b]),
        paired=paired,
        half_width=None if ci95 is None else (ci95[1] / ci95[0]) ** 0.5 - 1,
        blocks_for_visible_effect=(
            None if sd is None else stats.blocks_for_power(sd, VISIBLE_EFFECT)
        ),
        unequal=_unequal(table, a, b, used),
    )


def _unequal(table: Table, a: Point, b: Point, blocks: Sequence[Block]) -> tuple[str, ...]:
    """By cell the variables that were set for it alone, in words."""
    own = {
        p.cell: comparability.own_env(f for x in blocks for f in table.blocks[p][x].facts)
        for p in (a, b)
    }
    alone = {
        cell: [v for v in own[cell] if v not in own[other]]
        for cell, other in ((a.cell, b.cell), (b.cell, a.cell))
    }
    return tuple(
        f"{cell} alone ran with {', '.join(words)}" for cell, words in alone.items() if words
    )
