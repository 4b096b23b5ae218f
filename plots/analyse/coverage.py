"""Gaps: points that the study planned and that have fewer blocks with usable runs than planned, or
none; pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from bench.config import RunConfig
from plots.analyse import comparability
from plots.analyse.points import NO_SETTINGS, Point, Table
from plots.bundle.promise import as_recorded

MOST_BLOCKS = 10_000  # as slurm/ plans
_MOST_VALUES = 1000  # of a list


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Weak(BaseModel):
    """Every rank keeps its batch."""

    batch_per_rank: int


class Strong(BaseModel):
    """The ranks share one batch."""

    global_batch: int


class Batch(BaseModel):
    """A sweep of the batch at fixed ranks."""

    batch_per_rank: tuple[int, ...] = Field(max_length=_MOST_VALUES)
    world_sizes: tuple[int, ...] = Field((), max_length=_MOST_VALUES)


class Plan(BaseModel):
    """What study.toml says of the points; empty where it says nothing of them."""

    blocks: int | None = Field(None, ge=1, le=MOST_BLOCKS)
    cells: tuple[str, ...] = Field((), max_length=_MOST_VALUES, exclude=True)
    settings: Annotated[tuple[str, ...], BeforeValidator(_one_or_many)] = Field(
        ("shipped",), exclude=True
    )
    world_sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), max_length=_MOST_VALUES, exclude=True
    )
    weak: Weak | None = Field(None, exclude=True)
    strong: Strong | None = Field(None, exclude=True)
    batch: Batch | None = Field(None, exclude=True)
    run: dict[str, Any] = Field(default_factory=dict, exclude=True)
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict, exclude=True)


@dataclass(frozen=True)
class Gap:
    """A planned point of one curve, and the planned blocks that hold no usable run of it."""

    curve: str
    point: Point
    planned: int
    missing: tuple[int, ...]


def planned(plan: Plan) -> list[tuple[str, Point]]:
    """Every point of every curve, in the study's order; `single` takes each curve's one-rank batch
    and no settings.
    """
    found = []
    for cell in plan.cells:
        alone = cell == "single"
        for settings in (NO_SETTINGS,) if alone else plan.settings:
            for variant in _variants(plan, alone):
                found += [
                    (curve, Point(settings, cell, world, batch, variant))
                    for curve, world, batch in _sizes(plan, alone)
                ]
    return found


def _variants(plan: Plan, alone: bool) -> list[tuple[str, ...]]:
    """Each variant as 'field=value' of every field that some variant sets; those that are the same
    to `single` once.

    One that trains nothing is no point of a curve.
    """
    asked = [
        (values, as_recorded({**plan.run, **values})) for values in plan.variants.values() or ({},)
    ]
    trained = [(values, whole) for values, whole in asked if not whole.get("loader_only")]
    unseen = {"loader_only", *(comparability.EXCHANGE if alone else ())}
    fields = dict.fromkeys(
        k for values, _ in trained for k in as_recorded(values) if k not in unseen
    )
    usual = {k: RunConfig.model_fields[k].default for k in fields}
    return list(
        dict.fromkeys(
            tuple(f"{k}={({**usual, **whole})[k]}" for k in fields) for _, whole in trained
        )
    )


def _sizes(plan: Plan, alone: bool) -> Iterator[tuple[str, int, int]]:
    """(curve, ranks, images per rank)."""
    worlds = (1,) if alone else plan.world_sizes
    if plan.weak:
        yield from (("weak", w, plan.weak.batch_per_rank) for w in worlds)
    if plan.strong:
        yield from (("strong", w, plan.strong.global_batch // w) for w in worlds)
    if plan.batch:
        for world in (1,) if alone else plan.batch.world_sizes:
            yield from (("batch", world, b) for b in plan.batch.batch_per_rank)


def find(plan: Plan, table: Table) -> list[Gap]:
    """Planned points that lack blocks; blocks beyond the planned ones do not stand in for planned
    ones.
    """
    held: dict[
        Point, list[tuple[int, set[str]]]
    ] = {}  # whatever the variant: block, and what its runs were
    for point, blocks in table.blocks.items():
        made = [
            (block.number, {f"{k}={v}" for k, v in mean.facts[0].items()})
            for block, mean in blocks.items()
        ]
        held.setdefault(point._replace(variant=()), []).extend(made)
    wanted = range(plan.blocks or 0)
    gaps = []
    for curve, point in planned(plan):
        there = {
            number
            for number, facts in held.get(point._replace(variant=()), ())
            if facts.issuperset(point.variant)
        }
        gaps.append(Gap(curve, point, len(wanted), tuple(b for b in wanted if b not in there)))
    return [gap for gap in gaps if gap.missing]
