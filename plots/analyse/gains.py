"""Gains of a cell in one arm over the arm that it names: ratios without a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from bench.study.definition import Study
from bench.study.points import NotCompared, PointRow, Table, describe
from bench.study.verdict import may_differ


def gains(table: Table, study: Study, missing: list[NotCompared]) -> Iterator[PointRow]:
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
            yield PointRow(point, {"baseline": baseline, "ratio": ratio})
