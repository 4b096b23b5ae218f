"""What variants and arms gain over the plainest one: ratios without a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from bench.study.definition import Study
from bench.study.stats import Estimate
from plots.analyse import comparability, variants
from plots.analyse.points import NotCompared, Point, Table, describe


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
        return ", ".join(self.baseline.words) or self.baseline.cell


def gains(table: Table, study: Study) -> Iterator[Gain | NotCompared]:
    """Every variant against the plainest of its siblings, and every arm beside the comparison
    against its own cell; no verdict, as none was asked for.
    """
    yield from _arms_over_cells(table, study)
    siblings: dict[Point, list[Point]] = defaultdict(list)
    for point in table.blocks:
        siblings[point._replace(variant=())].append(point)
    for points in siblings.values():
        plainest, *others = sorted(points, key=lambda p: (variants.changes(p.variant), p.variant))
        for point in others:
            pair = f"{describe(point)} against {', '.join(plainest.words)}"
            # but for the timeline: compute that slept gains nothing over compute
            names = (name for name, _ in (*point.variant, *plainest.variant))
            varied = {*comparability.VARIED, *names} - {comparability.EMULATE}
            ignore = (*varied, "bucket_mib", "exchange_bytes")
            blocks, missing = table.shared(plainest, point, ignore, pair)
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
        pair = f"{describe(point)} against {plain.cell}"
        blocks, missing = table.shared(plain, point, ignore, pair)
        yield from missing
        if blocks:
            arm_fields = comparability.own_fields(table.facts(point, blocks))
            yield Gain(point, plain, table.paired(plain, point, blocks).estimate, arm_fields)
