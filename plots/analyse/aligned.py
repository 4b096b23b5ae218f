"""Points of several studies under the same names: a study that lacks a variant names none of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from plots.analyse.comparability import TUNED, Facts
from plots.analyse.points import Point, Table
from plots.analyse.study import Analysis
from plots.analyse.variants import beside, entry, in_order


def aligned(studies: Sequence[Analysis]) -> Iterator[Analysis]:
    """Each with the fields in every point's variant that any of the studies has in one."""
    fields = in_order({name for a in studies for p in a.table.blocks for name, _ in p.variant})
    for a in studies:
        names = {
            point: _named(point, next(iter(means.values())).facts[0], fields)
            for point, means in a.table.blocks.items()
        }
        blocks = {names[point]: means for point, means in a.table.blocks.items()}
        curves = {names[point]: of for point, of in a.table.curves.items()}
        compared = [replace(c, variant=names[c.points[0]].variant) for c in a.comparisons]
        yield replace(a, table=Table(blocks, curves), comparisons=compared)


def _named(point: Point, facts: Facts, fields: Sequence[str]) -> Point:
    """A field that the study does not vary has the value of the point's runs."""
    kinds = ("", TUNED)
    values = dict(entry(k, facts[x + k]) for k in fields for x in kinds if x + k in facts)
    values |= dict(point.variant)
    variant = tuple((k, values[k]) for k in fields if k in values)
    return point._replace(variant=beside(point.cell, variant))
