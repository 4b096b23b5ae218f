"""Gaps: points that the study planned and that have fewer blocks with usable runs than planned, or
none; pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.study.definition import Study
from bench.study.plan import config_of, points
from plots.analyse import comparability
from plots.analyse.points import CURVES, NO_SETTINGS, Point, Table

Planned = tuple[str, Point]  # a curve, and a point of it


@dataclass(frozen=True)
class Gap:
    """A planned point of one curve, and the planned blocks that hold no usable run of it."""

    curve: str
    point: Point
    planned: int
    missing: tuple[int, ...]


def planned(study: Study) -> list[Planned]:
    """Every point of every curve as reports know it: `single` has no settings, and the variant is
    every field that some variant sets.

    One that trains nothing is no point of a curve; a study that no site has filled in yet has none.
    """
    if study.needs_site:
        return []
    trained = [
        values
        for name, values in study.variants.items()
        if not study.fields_of(name, alone=False).get("loader_only")
    ]
    fields = dict.fromkeys(k for values in trained for k in values if k != "loader_only")
    found = []
    for point in points(study):
        config = config_of(study, point)
        if config.loader_only:
            continue
        alone = point.cell == "single"
        said = config.model_dump(mode="json", include=set(fields))
        variant = tuple(
            f"{k}={said[k]}" for k in fields if not (alone and k in comparability.EXCHANGE)
        )
        settings = NO_SETTINGS if alone else point.settings
        as_reported = Point(settings, point.cell, point.world_size, point.batch_per_rank, variant)
        found += [(curve, as_reported) for curve in point.curves]

    def order(one: Planned) -> tuple[int, ...]:
        curve, p = one
        return CURVES.index(curve), study.cells.index(p.cell), p.world_size, p.samples_per_rank

    return sorted(dict.fromkeys(found), key=order)


def is_planned(point: Point, plan: Sequence[Planned]) -> bool:
    """Whether a point is one of the planned; a variant's fields that no run differs in are not
    named in it.
    """
    return any(
        point._replace(variant=()) == wanted._replace(variant=())
        and set(point.variant) <= set(wanted.variant)
        for _, wanted in plan
    )


def find(blocks: int, plan: Sequence[Planned], table: Table) -> list[Gap]:
    """Planned points that lack blocks; blocks beyond the planned ones do not stand in for planned
    ones.
    """
    held: dict[
        Point, list[tuple[int, set[str]]]
    ] = {}  # whatever the variant: block, and what its runs were
    for point, means in table.blocks.items():
        made = [
            (block.number, {f"{k}={v}" for k, v in mean.facts[0].items()})
            for block, mean in means.items()
        ]
        held.setdefault(point._replace(variant=()), []).extend(made)
    gaps = []
    for curve, point in plan:
        there = {
            number
            for number, facts in held.get(point._replace(variant=()), ())
            if facts.issuperset(point.variant)
        }
        missing = tuple(b for b in range(blocks) if b not in there)
        gaps.append(Gap(curve, point, blocks, missing))
    return [gap for gap in gaps if gap.missing]
