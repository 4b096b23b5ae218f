"""Points of several studies under the same names: a study that lacks a variant names none of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from plots.analyse.comparability import in_order, without_exchange
from plots.analyse.points import Point, Table
from plots.analyse.study import Analysis


def aligned(studies: Sequence[Analysis]) -> Iterator[Analysis]:
    """Each with the fields in every point's variant that any of the studies has in one."""
    fields = {word.partition("=")[0] for a in studies for p in a.table.blocks for word in p.variant}
    for a in studies:
        names = {point: _named(a, point, fields) for point in a.table.blocks}
        blocks = {names[point]: means for point, means in a.table.blocks.items()}
        curves = {names[point]: found for point, found in a.table.curves.items()}
        yield replace(a, table=Table(blocks, curves))


def _named(a: Analysis, point: Point, fields: Collection[str]) -> Point:
    values = {**a.shared, **dict(word.split("=", 1) for word in point.variant)}
    variant = tuple(f"{k}={values[k]}" for k in in_order(fields) if k in values)
    return point._replace(variant=without_exchange(variant) if point.cell == "single" else variant)
