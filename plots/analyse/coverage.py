"""Gaps: points that the study planned and that fewer blocks hold than planned, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.study.definition import Point, Study
from bench.study.plan import config_of, points
from bench.study.points import CURVES, Table

Planned = tuple[str, Point]  # a curve, and a point of it


@dataclass(frozen=True)
class Gap:
    """A planned point of one curve, and the planned blocks that hold no usable run of it."""

    curve: str
    point: Point
    planned: int
    missing: tuple[int, ...]


def planned(study: Study) -> list[Planned]:
    """List every point of every curve.

    One whose speed is kept apart is no point of a curve; a study that no site has filled in yet has
    none.
    """
    if study.needs_site:
        return []
    plan = [
        (curve, point)
        for point, curves in points(study).items()
        if config_of(study, point, curves).is_throughput
        for curve in curves
    ]
    of_cells = sorted(plan, key=lambda one: (study.cells.index(one[1].cell), *one[1][2:]))
    return sorted(of_cells, key=lambda one: CURVES.index(one[0]))


def find(blocks: int, plan: Sequence[Planned], table: Table) -> Iterator[Gap]:
    """Yield planned points that lack planned blocks, for which blocks beyond do not stand in."""
    for curve, point in plan:
        held = {block.number for block in table.blocks.get(point, ())}
        if missing := tuple(block for block in range(blocks) if block not in held):
            yield Gap(curve, point, blocks, missing)
