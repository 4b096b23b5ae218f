"""Gaps: points that the study planned and that fewer blocks hold than planned, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.study.definition import Study
from bench.study.plan import config_of, points
from plots.analyse import comparability, variants
from plots.analyse.points import CURVES, Point, Table

Planned = tuple[str, Point]  # a curve, and a point of it


@dataclass(frozen=True)
class Gap:
    """A planned point of one curve, and the planned blocks that hold no usable run of it."""

    curve: str
    point: Point
    planned: int
    missing: tuple[int, ...]


def planned(study: Study) -> list[Planned]:
    """Every point of every curve as reports know it.

    One whose speed is kept apart is no point of a curve; a study that no site has filled in yet has
    none.
    """
    if study.needs_site:
        return []
    counted = [(p, c) for p in points(study) if (c := config_of(study, p)).is_throughput]
    fields = variants.fields_of(study, trained=True)
    plan: dict[Planned, None] = {}
    for point, config in counted:
        values = config.model_dump(mode="json", include={*fields})
        if config.emulate is not None:  # of a timeline, reports know the file's name
            values[comparability.EMULATE] = config.emulate.name
        variant = variants.beside(point.cell, tuple((k, str(values[k])) for k in fields))
        reported = Point(point.cell, point.world_size, point.batch_per_rank, variant)
        plan |= dict.fromkeys((curve, reported) for curve in point.curves)
    of_cells = sorted(plan, key=lambda one: (study.cells.index(one[1].cell), *one[1][1:3]))
    return sorted(of_cells, key=lambda one: CURVES.index(one[0]))


def find(blocks: int, plan: Sequence[Planned], table: Table) -> Iterator[Gap]:
    """Planned points that lack planned blocks, for which others beyond those do not stand in."""
    for curve, point in plan:
        numbers = {block.number for block in table.blocks.get(point, ())}
        if missing := tuple(block for block in range(blocks) if block not in numbers):
            yield Gap(curve, point, blocks, missing)
