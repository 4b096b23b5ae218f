"""Gaps: points that the study planned and that fewer blocks hold than planned, or none."""

from __future__ import annotations

from collections import defaultdict
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
    """List every point of every curve as reports know it.

    One whose speed is kept apart is no point of a curve; a study that no site has filled in yet has
    none.
    """
    if study.needs_site:
        return []
    counted = [(p, c) for p in points(study) if (c := config_of(study, p)).is_throughput]
    fields = variants.fields_of(study)
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


def is_planned(point: Point, plan: Sequence[Planned]) -> bool:
    """Check whether a point is one of the planned, in which further fields do not matter."""
    return _of_plan(point, plan) in {wanted for _, wanted in plan}


def find(blocks: int, plan: Sequence[Planned], table: Table) -> Iterator[Gap]:
    """Yield planned points that lack planned blocks, for which blocks beyond do not stand in."""
    held: dict[Point, set[int]] = defaultdict(set)
    for point, means in table.blocks.items():
        held[_of_plan(point, plan)] |= {block.number for block in means}
    for curve, point in plan:
        if missing := tuple(block for block in range(blocks) if block not in held[point]):
            yield Gap(curve, point, blocks, missing)


def _of_plan(point: Point, plan: Sequence[Planned]) -> Point:
    """Drop the fields that the plan does not vary: one run by hand names them in every point."""
    names = {name for _, wanted in plan for name, _ in wanted.variant}
    further = [name for name, _ in point.variant if name not in names]
    return point._replace(variant=variants.without(point.variant, further))
