"""Cells against cells and variants against the plainest one, point by point, paired by block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from bench.backends.catalogue import parts
from bench.study import looks, power, stats
from bench.study.definition import Primary, Study, pairs
from bench.study.stats import Estimate, Paired, Verdict
from plots.analyse import comparability
from plots.analyse.comparability import Block
from plots.analyse.points import CURVES, NO_SETTINGS, NotCompared, Point, Table, describe

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
    of_one_arm: tuple[str, ...] = ()  # what the study set for one side alone: part of the question
    primary: bool = False
    verdict: Verdict = "too few blocks"  # as decided
    tost_p: float | None = None  # p value of lying outside the margin
    # t_p and tost_p over all looks and comparisons; None: too few blocks
    holm_p: float | None = None
    holm_tost_p: float | None = None
    looks: tuple[int, ...] = ()  # blocks at which the study reads a verdict
    level: float = stats.ALPHA  # of each look: an interval that decides covers 1 - level
    # the error of all looks together, with one at this n where that is none of them
    overall_level: float = stats.ALPHA
    blocks_to_settle: int | None = None

    @property
    def points(self) -> tuple[Point, Point]:
        """Reference and candidate."""
        where = self.world_size, self.samples_per_rank, self.variant
        a, b = (Point(self.settings, cell, *where) for cell in (self.reference, self.candidate))
        return a, b

    @property
    def transport(self) -> str:
        """What both sides travel on, else each side's."""
        both = (parts(cell).transport for cell in (self.reference, self.candidate))
        return " and ".join(dict.fromkeys(filter(None, both)))

    @property
    def early(self) -> bool:
        """Whether blocks are still missing at the first planned look."""
        return bool(self.looks) and self.paired.n < self.looks[0]

    @property
    def off_plan(self) -> bool:
        """Whether a verdict is read between the planned looks, or after them."""
        return bool(self.looks) and not self.early and self.paired.n not in self.looks

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


def compare(table: Table, study: Study) -> list[Comparison | NotCompared]:
    """Every point that either side of the study has, paired by block, with its verdict."""
    rows: list[Comparison] = []
    missing: list[NotCompared] = []
    for a, b in _pairs(table, study):
        what = f"{describe(a)} against {b.cell}"
        if lacking := [p for p in (a, b) if p not in table.blocks]:
            missing.append(NotCompared(what, f"no usable run of {lacking[0].cell}", lacking[0]))
            continue
        ignore = (comparability.TUNED, comparability.OWN_ENV, comparability.OF_THE_ARM)
        blocks, reasons = table.shared(a, b, ignore, what)
        missing += reasons
        rows += [_comparison(table, a, b, blocks)] if blocks else []
    # several of that name would need a correction of their own
    named = [row for row in rows if study.primary is not None and _is(row, study.primary)]
    if len(named) == 1:
        rows = [replace(row, primary=row is named[0]) for row in rows]
    return [*_decided(rows, study), *missing]


def _pairs(table: Table, study: Study) -> list[tuple[Point, Point]]:
    """The points of each two cells that are compared, whether or not both have them."""
    cells = sorted({p.cell for p in table.blocks})
    return sorted(
        (point, point._replace(cell=b))
        for a, b in pairs(cells, study.reference, study.candidate)
        for point in {p._replace(cell=a) for p in table.blocks if p.cell in (a, b)}
    )


def _is(row: Comparison, primary: Primary) -> bool:
    asked = primary.model_dump(exclude={"curve"}, exclude_none=True)
    asked["samples_per_rank"] = asked.pop("batch_per_rank", row.samples_per_rank)
    same = all(getattr(row, name) == value for name, value in asked.items())
    return same and primary.curve in row.curves


def _decided(rows: Sequence[Comparison], study: Study) -> list[Comparison]:
    """Each with its verdict; Holm's correction spans all, and the primary one has half its error.

    Differences and equivalences are corrected apart, as no point can be wrong in both ways: each
    kind errs on at most 5 % of pages.
    """
    margin, planned = study.margin, study.looks
    level = looks.nominal_level(planned) if planned else stats.ALPHA
    rows = [replace(r, looks=planned, tost_p=stats.tost_p(r.paired, margin)) for r in rows]
    tested = [r for r in rows if r.paired.n >= stats.MIN_BLOCKS]
    weights = [max(1, len(tested) - 1) if r.primary else 1 for r in tested]

    def corrected(p_values: Sequence[float | None]) -> dict[int, float]:
        over_looks = [looks.overall_level(planned, p) for p in p_values if p is not None]
        return dict(zip(map(id, tested), stats.holm(over_looks, weights), strict=True))

    t_p, tost_p = (corrected([r.paired.t_p for r in tested]), corrected([r.tost_p for r in tested]))
    return [_judged(r, margin, level, t_p.get(id(r)), tost_p.get(id(r))) for r in rows]


def _judged(
    row: Comparison, margin: float, level: float, holm_p: float | None, holm_tost_p: float | None
) -> Comparison:
    """With the verdict at this level, and what led to it."""
    verdict = stats.decide(row.paired, margin, level=level, holm_p=holm_p, holm_tost_p=holm_tost_p)
    settle = None
    if verdict == "inconclusive":
        settle = power.blocks_to_settle(row.paired, margin, level=level)
    read = tuple(sorted({*row.looks, max(row.paired.n, stats.MIN_BLOCKS)})) if row.looks else ()
    return replace(
        row,
        verdict=verdict,
        holm_p=holm_p,
        holm_tost_p=holm_tost_p,
        level=level,
        overall_level=looks.overall_level(read, level),
        blocks_to_settle=settle,
    )


def _comparison(table: Table, a: Point, b: Point, blocks: Sequence[Block]) -> Comparison:
    paired = table.paired(a, b, blocks)
    ci95, sd = paired.ci95, paired.sd_log
    price = None if sd is None else power.blocks_for_power(sd, VISIBLE_EFFECT)
    facts = [(p.cell, table.facts(p, blocks)) for p in (a, b)]
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
        blocks_for_visible_effect=price,
        unequal=_of_one([(c, comparability.own_env(f)) for c, f in facts]),
        of_one_arm=_of_one([(c, comparability.own_fields(f)) for c, f in facts]),
    )


def _of_one(own: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """What one of two cells alone had, in words."""
    (a, own_a), (b, own_b) = own
    alone = [(a, [v for v in own_a if v not in own_b]), (b, [v for v in own_b if v not in own_a])]
    return tuple(f"{c} alone ran with {', '.join(had)}" for c, had in alone if had)


class Choice(NamedTuple):
    """One side that was asked for: points of a cell with these settings and fields of a variant."""

    cell: str
    fields: Mapping[str, str] = MappingProxyType({})

    def takes(self, point: Point) -> bool:
        """Whether a point is one of them."""
        words = {f"settings={point.settings}", *point.variant}
        return point.cell == self.cell and words >= {f"{k}={v}" for k, v in self.fields.items()}


def between(
    table: Table, study: Study, a: Choice, b: Choice
) -> tuple[list[Comparison], list[NotCompared]]:
    """Any two sides of one study, wherever they agree in all that they were not chosen by."""
    chosen = (*a.fields, *b.fields)
    ignore = [comparability.TUNED, comparability.OWN_ENV, comparability.OF_THE_ARM, *chosen]
    ignore += ["bucket_mib", "exchange_bytes"] if chosen else []
    rows: list[Comparison] = []
    missing: list[NotCompared] = []
    for p, q in ((p, q) for p in table.blocks for q in table.blocks if a.takes(p) and b.takes(q)):
        if p == q or not _meet(p, q, chosen):
            continue
        what = f"{describe(q)} against {describe(p)}"
        blocks, reasons = table.shared(p, q, tuple(ignore), what)
        missing += reasons
        rows += [_named(_comparison(table, p, q, blocks), p, q)] if blocks else []
    ordered = sorted(rows, key=lambda r: (r.variant, r.samples_per_rank, r.world_size))
    return _decided(ordered, study), missing


def _meet(p: Point, q: Point, chosen: Sequence[str]) -> bool:
    def rest(point: Point) -> list[str]:
        return [word for word in point.variant if word.partition("=")[0] not in chosen]

    alike = (
        "settings" in chosen or p.settings == q.settings or NO_SETTINGS in (p.settings, q.settings)
    )
    return alike and p[2:4] == q[2:4] and rest(p) == rest(q)


def _named(row: Comparison, p: Point, q: Point) -> Comparison:
    """With both sides of what they differ in: 'precision=bf16 over float32', '-' of a side that has
    no such field.
    """
    before = dict(word.split("=", 1) for word in p.variant)
    after = dict(word.split("=", 1) for word in q.variant)
    sides = {k: (after.get(k, "-"), before.get(k, "-")) for k in (*after, *before)}
    words = tuple(f"{k}={' over '.join(dict.fromkeys(values))}" for k, values in sides.items())
    both = [s for s in dict.fromkeys((q.settings, p.settings)) if s != NO_SETTINGS]
    return replace(row, settings=" over ".join(both) or NO_SETTINGS, variant=words)


@dataclass(frozen=True)
class Gain:
    """Images/s of `point` over those of `baseline`, which differs from it in its variant alone, or
    is the cell that it is an arm of.
    """

    point: Point
    baseline: Point
    ratio: Estimate
    of_the_arm: tuple[str, ...] = ()  # fields that the arm has of its own

    @property
    def over(self) -> str:
        """What the baseline is, in the words that tell it apart."""
        return ", ".join(self.baseline.variant) or self.baseline.cell


def gains(table: Table, study: Study) -> Iterator[Gain | NotCompared]:
    """Every variant against the plainest of its siblings, and every arm beside the comparison
    against its own cell; no verdict, as none was asked for.
    """
    yield from _arms_over_cells(table, study)
    siblings: dict[Point, list[Point]] = defaultdict(list)
    for point in table.blocks:
        siblings[point._replace(variant=())].append(point)
    for points in siblings.values():
        plainest, *others = sorted(points, key=lambda p: (_changed(p), p.variant))
        for point in others:
            what = f"{describe(point)} against {', '.join(plainest.variant)}"
            # but for the timeline: compute that slept gains nothing over compute
            words = (word.partition("=")[0] for word in (*point.variant, *plainest.variant))
            varied = {*comparability.VARIED, *words} - {comparability.EMULATE}
            ignore = (*varied, "bucket_mib", "exchange_bytes")
            blocks, missing = table.shared(plainest, point, ignore, what)
            yield from missing
            if blocks:
                yield Gain(point, plainest, table.paired(plainest, point, blocks).estimate)


def _arms_over_cells(table: Table, study: Study) -> Iterator[Gain | NotCompared]:
    arms = {arm: plain for plain, arm in study.beside}
    ignore = (*comparability.VARIED, comparability.OF_THE_ARM, "bucket_mib", "exchange_bytes")
    for point in (p for p in table.blocks if p.cell in arms):
        plain = point._replace(cell=arms[point.cell])
        if plain not in table.blocks:
            continue
        what = f"{describe(point)} against {plain.cell}"
        blocks, missing = table.shared(plain, point, ignore, what)
        yield from missing
        if blocks:
            own = comparability.own_fields(table.facts(point, blocks))
            yield Gain(point, plain, table.paired(plain, point, blocks).estimate, own)


def _changed(point: Point) -> int:
    """Number of fields that are not at their defaults."""
    words = (word.partition("=") for word in point.variant)
    return sum(value != comparability.usual(field) for field, _, value in words)
