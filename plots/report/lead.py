"""The first screen of report.html: the figure that answers, and three numbers beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.study.stats import Estimate
from plots.analyse.points import Point
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
    """How the names begin of the figures that answer; the first one that is drawn does."""
    if not a.comparisons:
        return ()
    return ("accuracy",) if answer.trainings_answer(a) else ("ratio-by-size", "ratio")


def numbers(a: Analysis) -> list[Number]:
    """Of the comparison of most weight; without one, of the largest points."""
    if not (compared := answer.by_weight(a)):
        return list(_numbers(a, _largest(a), "weak"))
    c = compared[0]
    return list(_numbers(a, [p for p in c.points if p in a.table.blocks], c.curves[0]))


def _largest(a: Analysis) -> list[Point]:
    most = max(p.world_size for p in a.table.blocks)
    return sorted(p for p in a.table.blocks if p.world_size == most)[:2]


def _numbers(a: Analysis, points: Sequence[Point], curve: str) -> Iterator[Number]:
    values = _values(points, a.throughput, lambda r: r.images_per_s, rate)
    yield Number("Throughput, images/s", values)
    common = [s for s in a.efficiency if s.kind == "common" and s.curve == curve]
    values = _values(points, common, lambda s: s.efficiency, percent)
    name = f"{'Strong' if curve == 'strong' else 'Weak'} efficiency against one plain process"
    missing = "no plain process was measured"
    if curve == "batch":
        missing = "not asked: the study varies the batch, not the ranks"
    yield Number(name, values, missing)
    costs = [c for c in a.exchange.costs if c.exposed_seconds] if a.exchange else []
    values = _values(points, costs, lambda c: c.exposed_seconds, ms)
    yield Number("Exposed communication, ms", values, "not measured: see the study exposed")


def _values(
    points: Sequence[Point],
    rows: Iterable[Any],
    estimate: Callable[[Any], Estimate | None],
    form: Callable[[float], str],
) -> list[tuple[str, str]]:
    """Of these points, each once."""
    estimates = {row.point: e for row in rows if (e := estimate(row)) is not None}
    return [(p.cell, interval(estimates[p], form)) for p in points if p in estimates]
