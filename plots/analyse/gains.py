"""Gains of a cell in one arm over the arm that it names: ratios without a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.study.definition import Point, Study
from bench.study.points import NotCompared, Table, describe
from bench.study.stats import Estimate
from bench.study.verdict import may_differ


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Images per second of a point over its cell's in another arm."""

    point: Point
    baseline: Point
    ratio: Estimate


def gains(table: Table, study: Study, missing: list[NotCompared]) -> Iterator[Gain]:
    """Compare every point with that of the arm it is told over, where the study compares cells.

    There is no verdict, as none was asked for. `ratio` is of images/s.
    """
    for point in table.blocks if study.reference != study.candidate else ():
        baseline = point._replace(arm=study.over(point.arm) or point.arm)
        if baseline == point or baseline not in table.blocks:
            continue
        pair = f"{describe(point)} against {baseline.arm}"
        ignore = may_differ(study, baseline, point)
        if blocks := table.shared(baseline, point, ignore, pair, missing):
            ratio = table.paired(baseline, point, blocks).estimate
            yield Gain(point=point, baseline=baseline, ratio=ratio)
