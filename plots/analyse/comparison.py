"""Cells against cells and variants against the plainest one, point by point, paired by block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench.study import stats
from bench.study.definition import Primary, Study, pairs
from bench.study.stats import Estimate, Paired, Verdict
from plots.analyse import comparability
from plots.analyse.comparability import Block
from plots.analyse.points import CURVES, NotCompared, Point, Table, describe

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


def compare(table: Table, study: Study) -> list[Comparison | NotCompared]:
    """Every point that either side of the study has, paired by block, with its verdict."""
    rows: list[Comparison] = []
    missing: list[NotCompared] = []
    for a, b in _pairs(table, study):
        what = f"{describe(a)} against {b.cell}"
        if lacking := [p for p in (a, b) if p not in table.blocks]:
            missing.append(NotCompared(what, f"no usable run of {lacking[0].cell}", lacking[0]))
            continue
        ignore = (comparability.TUNED, comparability.OWN_ENV)
        blocks, reasons = table.shared(a, b, ignore, what)
        missing += reasons
        rows += [_comparison(table, a, b, blocks)] if blocks else []
    # several of that name would need a correction of their own
    named = [row for row in rows if study.primary is not None and _is(row, study.primary)]
    if len(named) == 1:
        rows = [replace(row, primary=row is named[0]) for row in rows]
    return [*_decided(rows, study.margin), *missing]


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


def _comparison(table: Table, a: Point, b: Point, blocks: Sequence[Block]) -> Comparison:
    paired = table.paired(a, b, blocks)
    ci95, sd = paired.ci95, paired.sd_log
    price = None if sd is None else stats.blocks_for_power(sd, VISIBLE_EFFECT)
    own_a, own_b = (comparability.own_env(table.facts(p, blocks)) for p in (a, b))
    alone = {
        a.cell: [v for v in own_a if v not in own_b],
        b.cell: [v for v in own_b if v not in own_a],
    }
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
        unequal=tuple(f"{c} alone ran with {', '.join(own)}" for c, own in alone.items() if own),
    )


@dataclass(frozen=True)
class Gain:
    """Images/s of `point` over those of `baseline`, which differs from it in its variant alone."""

    point: Point
    baseline: Point
    ratio: Estimate


def gains(table: Table) -> Iterator[Gain | NotCompared]:
    """Every variant against the plainest of its siblings; no verdict, as none was asked for."""
    siblings: dict[Point, list[Point]] = defaultdict(list)
    for point in table.blocks:
        siblings[point._replace(variant=())].append(point)
    for points in siblings.values():
        plainest, *others = sorted(points, key=lambda p: (_changed(p), p.variant))
        for point in others:
            what = f"{describe(point)} against {', '.join(plainest.variant)}"
            # but for the timeline: compute that slept gains nothing over compute
            varied = (name for name in comparability.VARIED if name != comparability.EMULATE)
            ignore = (*varied, "exchange_bytes")
            blocks, missing = table.shared(plainest, point, ignore, what)
            yield from missing
            if blocks:
                yield Gain(point, plainest, table.paired(plainest, point, blocks).estimate)


def _changed(point: Point) -> int:
    """Number of fields that are not at their defaults."""
    words = (word.partition("=") for word in point.variant)
    return sum(value != comparability.usual(field) for field, _, value in words)
