"""Cells against cells and variants against the plainest one, point by point, paired by block."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bench.backends.catalogue import cells, parts
from bench.study import looks, power, stats
from bench.study.definition import Primary, Study, pairs
from bench.study.stats import Estimate, Paired, Verdict
from plots.analyse import comparability, variants
from plots.analyse.comparability import Block, Facts
from plots.analyse.points import CURVES, NotCompared, Point, Table, describe
from plots.analyse.sessions import another_day
from plots.analyse.variants import Variant


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Candidate over reference in images/s at one point; above 1 the candidate is faster."""

    reference: str  # cells
    candidate: str
    world_size: int
    samples_per_rank: int
    variant: Variant
    curves: tuple[str, ...]
    paired: Paired
    median_ratio: float  # of the runs' median steps, a check beside the ratio of totals
    first_steps: Paired | None  # a window's first step over its others, of one side over the other
    sessions: tuple[str, ...]  # of each block
    emulated: bool  # whether compute slept
    of_one_arm: tuple[str, ...] = ()  # what the study set for one side alone: part of the question
    margin: float = 0.02
    primary: bool = False
    verdict: Verdict = "not settled"
    decides: bool = True  # whether the study plans launches enough for a verdict, or has them
    needs: int = stats.MIN_BLOCKS  # launches at the first look
    level: float = stats.ALPHA  # what the interval that decides misses: looks and others are in it
    another_day: tuple[float, float] | None = None  # where the ratio may be then
    max_blocks: int = 0  # launches at the last look
    blocks_to_settle: int | None = None  # launches in all; None: settled, not known, out of reach
    chance: float | None = None  # of a verdict at the last look, were ratio and noise the true ones

    @property
    def points(self) -> tuple[Point, Point]:
        """Reference and candidate."""
        where = self.world_size, self.samples_per_rank, self.variant
        a, b = (Point(cell, *where) for cell in (self.reference, self.candidate))
        return a, b

    @property
    def words(self) -> tuple[str, ...]:
        """The variant's fields, each as 'field=value'."""
        return variants.words(self.variant)

    @property
    def transport(self) -> str:
        """What both sides travel on, else each side's."""
        both = (parts(cell).transport for cell in (self.reference, self.candidate))
        return " and ".join(dict.fromkeys(filter(None, both)))

    @property
    def unit(self) -> str:
        """What the interval is over: launches, or from three of them on sessions."""
        return "sessions" if len(set(self.sessions)) >= stats.SESSIONS else "launches"

    @property
    def estimate(self) -> Estimate:
        """The ratio with the interval that decides."""
        return self.paired.estimate_at(self.level)

    @property
    def half_width(self) -> float | None:
        """Of that interval, relative: 0.01 is 1 %."""
        ends = self.paired.interval(self.level)
        return None if ends is None else math.sqrt(ends[1] / ends[0]) - 1

    @property
    def settled(self) -> bool:
        return self.verdict != "not settled"

    @property
    def skewed(self) -> bool:
        """Whether the median steps tell of another ratio, by more than the margin."""
        off = abs(math.log(self.median_ratio / self.paired.ratio))
        return self.paired.n >= stats.MIN_BLOCKS and off > math.log1p(self.margin)

    @property
    def samples_per_step(self) -> int:
        return self.samples_per_rank * self.world_size

    @property
    def faster(self) -> str:
        """The cell with the larger throughput."""
        return self.candidate if self.paired.ratio > 1 else self.reference


def compare(table: Table, study: Study, missing: list[NotCompared]) -> list[Comparison]:
    """Compare every point that either side of the study has, paired by block, with its verdict."""
    rows: list[Comparison] = []
    ignore = comparability.OF_A_SIDE
    for a, b in _pairs(table, study):
        pair = f"{describe(a)} against {b.cell}"
        if lacking := [p for p in (a, b) if p not in table.blocks]:
            missing.append(NotCompared(pair, f"no usable run of {lacking[0].cell}", lacking[0]))
        elif blocks := table.shared(a, b, ignore, pair, missing):
            rows.append(_comparison(table, a, b, blocks, swapped=True))
    return _decided(rows, study, _primary(rows, study))


def _primary(rows: Sequence[Comparison], study: Study) -> Comparison | None:
    """Choose the row that the study names; else most ranks on its first transport, weak first.

    None where several have that name, or none has.
    """
    if study.primary is not None:
        named = [row for row in rows if _is(row, study.primary, study)]
        return named[0] if len(named) == 1 else None
    transports = [parts(cell).transport for cell in (*study.cells, *cells())]

    def order(row: Comparison) -> tuple[object, ...]:
        plain = variants.changes(row.variant), row.variant
        first = transports.index(parts(row.candidate).transport)
        exchange = variants.changes_exchange(row.variant)
        curve = CURVES.index(row.curves[0])
        return exchange, -row.world_size, first, curve, plain, -row.samples_per_rank

    return min(rows, key=order, default=None)


def _pairs(table: Table, study: Study) -> list[tuple[Point, Point]]:
    """Pair the points of each two cells that are compared, whether or not both have them."""
    table_cells = sorted({p.cell for p in table.blocks})
    return sorted(
        (point, point._replace(cell=b))
        for a, b in pairs(table_cells, study.reference, study.candidate)
        for point in {p._replace(cell=a) for p in table.blocks if p.cell in (a, b)}
    )


def _is(row: Comparison, primary: Primary, study: Study) -> bool:
    fields = primary.model_dump(exclude={"curve", "variant"}, exclude_none=True)
    fields["samples_per_rank"] = fields.pop("batch_per_rank", row.samples_per_rank)
    same = all(getattr(row, name) == value for name, value in fields.items())
    of_variant = study.fields_of(primary.variant or "", alone=False)
    named = all(v == str(of_variant.get(k, comparability.usual(k))) for k, v in row.variant)
    return same and primary.curve in row.curves and (named or primary.variant is None)


def _decided(
    rows: Sequence[Comparison], study: Study, primary: Comparison | None = None
) -> list[Comparison]:
    """Give each row its verdict: the primary one at the full ALPHA, all others at ALPHA together.

    The others have t intervals at ALPHA over their number (Bonferroni), so that all of them hold
    their truths at once in 1 - ALPHA of pages, at all looks, and no interval contradicts its word.
    Holm's steps would free error for the rest where one is settled; but one interval settles in two
    ways, and of ten arms at the margin's edge those steps call one equal on 10 % of pages.
    """
    others = sum(r is not primary and r.paired.n >= stats.MIN_BLOCKS for r in rows)
    levels = {True: stats.ALPHA, False: stats.ALPHA / max(1, others)}
    nominal = {first: looks.nominal_level(study.looks, level) for first, level in levels.items()}
    return [_judged(r, study, nominal[r is primary], r is primary) for r in rows]


def _judged(row: Comparison, study: Study, level: float, primary: bool) -> Comparison:
    """Add the verdict at this level to a comparison, and what may lead to one."""
    needs = study.looks[0] if study.looks else stats.MIN_BLOCKS
    paired = stats.over_sessions(row.paired, row.sessions)
    ends, enough = paired.interval(level), paired.n >= needs
    verdict = stats.decide(ends, study.margin) if ends and enough else row.verdict
    may_settle = verdict == "not settled" and paired.n >= stats.MIN_BLOCKS
    return replace(
        row,
        paired=paired,
        margin=study.margin,
        primary=primary,
        verdict=verdict,
        level=level,
        needs=needs,
        max_blocks=study.max_blocks,
        another_day=another_day(paired, row.sessions, level, emulated=row.emulated),
        decides=not 0 < study.blocks < stats.MIN_BLOCKS or enough,
        **(_prospect(paired, study, level) if may_settle else {}),
    )


def _prospect(paired: Paired, study: Study, level: float) -> dict[str, Any]:
    last = max(study.max_blocks, paired.n)
    return {
        "blocks_to_settle": power.blocks_to_settle(paired, study.margin, level),
        "chance": power.chance(paired, study.margin, last, level),
    }


def _comparison(
    table: Table, a: Point, b: Point, blocks: Sequence[Block], swapped: bool = False
) -> Comparison:
    facts = [(p.cell, table.facts(p, blocks)) for p in (a, b)]
    return Comparison(
        reference=a.cell,
        candidate=b.cell,
        world_size=a.world_size,
        samples_per_rank=a.samples_per_rank,
        variant=a.variant,
        curves=tuple(c for c in CURVES if c in table.curves[a] | table.curves[b]),
        paired=table.paired(a, b, blocks, swapped),
        median_ratio=table.median_ratio(a, b, blocks),
        first_steps=table.first_steps(a, b, blocks),
        sessions=tuple(table.sessions(a, blocks)),
        emulated=any(comparability.is_emulated(one) for _, side in facts for one in side),
        of_one_arm=_of_one(facts),
    )


def _of_one(sides: Sequence[tuple[str, Sequence[Facts]]]) -> tuple[str, ...]:
    """Describe in words what one of two cells alone had."""
    (a, of_a), (b, of_b) = ((cell, comparability.of_the_arm(facts)) for cell, facts in sides)
    alone = [(a, [v for v in of_a if v not in of_b]), (b, [v for v in of_b if v not in of_a])]
    return tuple(f"{c} alone ran with {', '.join(had)}" for c, had in alone if had)


_ABSENT = "absent"  # of a field that means nothing to a cell


class Choice(NamedTuple):
    """One side that was asked for: points of a cell with these fields of a variant."""

    cell: str
    fields: Variant = ()

    def takes(self, point: Point) -> bool:
        """Check whether a point is one of those chosen."""
        return point.cell == self.cell and {*self.fields} <= {*point.variant}


def between(
    table: Table, study: Study, a: Choice, b: Choice
) -> tuple[list[Comparison], list[NotCompared]]:
    """Compare any two sides of one study, wherever they agree in all they were not chosen by."""
    chosen = [name for name, _ in (*a.fields, *b.fields)]
    ignore = [*comparability.OF_A_SIDE, *chosen]
    ignore += ["bucket_mib", "exchange_bytes"] if chosen else []
    rows: list[Comparison] = []
    missing: list[NotCompared] = []
    for p, q in ((p, q) for p in table.blocks for q in table.blocks if a.takes(p) and b.takes(q)):
        if p == q or not _meet(p, q, chosen):
            continue
        pair = f"{describe(q)} against {describe(p)}"
        if blocks := table.shared(p, q, ignore, pair, missing):
            rows.append(_named(_comparison(table, p, q, blocks), p, q))
    ordered = sorted(rows, key=lambda r: (r.variant, r.samples_per_rank, r.world_size))
    return _decided(ordered, study), missing


def _meet(p: Point, q: Point, chosen: Collection[str]) -> bool:
    alone = "single" in (p.cell, q.cell)  # which exchanges nothing
    apart = {*chosen, *(comparability.OF_MANY if alone else ())}
    rest = [variants.without(point.variant, apart) for point in (p, q)]
    return p[1:3] == q[1:3] and rest[0] == rest[1]


def _named(row: Comparison, p: Point, q: Point) -> Comparison:
    """Name both sides of what two points differ in: 'precision=bf16 over float32', 'absent' where a
    side has no such field.
    """
    before, after = dict(p.variant), dict(q.variant)
    sides = {k: (after.get(k, _ABSENT), before.get(k, _ABSENT)) for k in (*after, *before)}
    both = tuple((k, " over ".join(dict.fromkeys(values))) for k, values in sides.items())
    return replace(row, variant=both)
