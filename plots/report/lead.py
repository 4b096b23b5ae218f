"""The first screen of report.html: the figure that answers, and three numbers beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from plots.analyse.study import Analysis
from plots.report import answer
from plots.report.format import interval, ms, percent, rate


@dataclass(frozen=True)
class Number:
    """One thing measured of both sides: what, in which unit, and per cell value and interval."""

    name: str
    values: Sequence[tuple[str, str]]
    missing: str = ""  # why there is none


def figures_of(a: Analysis) -> tuple[str, ...]:
    """Name figures that answer, by how their names begin; the first one that is drawn does."""
    if not a.comparisons:
        return ()
    return ("accuracy",) if answer.trainings_answer(a) else ("ratio-by-size", "ratio")


def numbers(a: Analysis) -> list[Number]:
    """Choose numbers of the comparison of most weight; without one, of two cells at most ranks."""
    most = max(p.world_size for p in a.table.blocks)
    points, curve = sorted(p for p in a.table.blocks if p.world_size == most)[:2], "weak"
    if compared := answer.by_weight(a):
        points = [p for p in compared[0].points if p in a.table.blocks]
        curve = compared[0].curves[0]

    def values(
        rows: Iterable[Any], estimate: str, form: Callable[[float], str]
    ) -> list[tuple[str, str]]:
        each = {row.point: e for row in rows if (e := getattr(row, estimate)) is not None}
        return [(p.cell, interval(each[p], form)) for p in points if p in each]

    common = [s for s in a.efficiency if s.kind == "common" and s.curve == curve]
    costs = a.exchange.costs if a.exchange else []
    name = f"{'Strong' if curve == 'strong' else 'Weak'} efficiency against one plain process"
    missing = "no plain process was measured"
    if curve == "batch":
        missing = "not asked: the study varies the batch, not the ranks"
    exposed = values(costs, "exposed_seconds", ms)
    return [
        Number("Throughput, images/s", values(a.throughput, "images_per_s", rate)),
        Number(name, values(common, "efficiency", percent), missing),
        Number("Exposed communication, ms", exposed, "not measured: see the study exposed"),
    ]
