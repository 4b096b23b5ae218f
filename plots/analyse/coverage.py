"""Gaps: points that the study planned and that fewer blocks hold than planned, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.config import Role, fields_with
from bench.study.definition import Study
from bench.study.plan import config_of, points
from plots.analyse import comparability
from plots.analyse.comparability import without_exchange
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
    """Every point of every curve as reports know it; its variant has all fields that any sets.

    One whose speed is kept apart is no point of a curve; a study that no site has filled in yet has
    none.
    """
    if study.needs_site:
        return []
    counted = [(p, c) for p in points(study) if (c := config_of(study, p)).is_throughput]
    varied = (field for point, _ in counted for field in study.variants.get(point.variant, ()))
    fields = [field for field in dict.fromkeys(varied) if field not in fields_with(Role.APART)]
    plan: dict[Planned, None] = {}
    for point, config in counted:
        values = config.model_dump(mode="json", include={*fields})
        if config.emulate is not None:  # of a timeline, reports know the file's name
            values[comparability.EMULATE] = config.emulate.name
        variant = tuple(f"{k}={values[k]}" for k in fields)
        variant = without_exchange(variant) if point.cell == "single" else variant
        reported = Point(point.cell, point.world_size, point.batch_per_rank, variant)
        plan |= dict.fromkeys((curve, reported) for curve in point.curves)
    of_cells = sorted(plan, key=lambda one: (study.cells.index(one[1].cell), *one[1][1:3]))
    return sorted(of_cells, key=lambda one: CURVES.index(one[0]))


def is_planned(point: Point, plan: Sequence[Planned]) -> bool:
    """Whether a point is one of the planned, however few of a variant's fields its name holds."""
    return any(
        _bare(point) == _bare(wanted) and {*map(_named, point.variant)} <= {*wanted.variant}
        for _, wanted in plan
    )


def find(blocks: int, plan: Sequence[Planned], table: Table) -> Iterator[Gap]:
    """Planned points that lack planned blocks, for which others beyond those do not stand in."""
    held: dict[Point, list[tuple[int, set[str]]]] = defaultdict(list)
    for point, means in table.blocks.items():
        for block, mean in means.items():
            facts = {_named(f"{k}={v}") for k, v in mean.facts[0].items()}
            held[_bare(point)].append((block.number, facts))
    for curve, point in plan:
        numbers = {n for n, facts in held[_bare(point)] if facts.issuperset(point.variant)}
        if missing := tuple(block for block in range(blocks) if block not in numbers):
            yield Gap(curve, point, blocks, missing)


def _bare(point: Point) -> Point:
    """Whatever the variant: fields in which no run differs are not named in it."""
    return point._replace(variant=())


def _named(word: str) -> str:
    """A timeline by its file's name alone; its digest is known of runs, not of the plan."""
    return word.partition(" ")[0] if word.startswith(f"{comparability.EMULATE}=") else word
