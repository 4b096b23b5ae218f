"""The first screen of a page: a sentence, its verdict, the figure that answers, three numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.study.stats import Estimate
from plots.analyse.comparison import Comparison
from plots.analyse.points import Point, ranks
from plots.analyse.study import Analysis
from plots.report import answer, learned, verdicts
from plots.report.checks import Check, checks
from plots.report.format import clean, count, interval, ms, percent, rate, ratio, rule
from plots.report.onward import onward
from plots.report.why import why

_MOST = 1000  # characters of a line


@dataclass(frozen=True)
class Number:
    """One thing measured of both sides: what, in which unit, and per cell value and interval."""

    name: str
    values: Sequence[tuple[str, str]]
    missing: str = ""  # why there is none


@dataclass(frozen=True)
class Lead:
    """What stands there, beside the figure."""

    sentence: str
    verdict: str  # of the comparison that it tells of, '' where it tells of none
    others: str  # the verdicts of all comparisons together, '' of one
    numbers: Sequence[Number]
    checks: Sequence[Check]
    why: str  # one side is faster; '' where nothing measured tells
    onward: str  # what to do next, in Markdown; '' where nothing is to be done


def figures_of(a: Analysis) -> tuple[str, ...]:
    """How the names begin of the figures that answer; the first one that is drawn does."""
    if not a.comparisons:
        return ()
    return ("accuracy",) if learned.answers(a) else ("ratio-by-size", "ratio")


def lead(a: Analysis) -> Lead:
    """Of the primary comparison, else of the first at most ranks; without one, of the largest."""
    compared, checked = answer.by_weight(a), checks(a)
    if not compared:
        numbers = list(_numbers(a, _largest(a), "weak"))
        return Lead(answer.opening(a), "", "", numbers, checked, "", "")
    c = compared[0]
    numbers = list(_numbers(a, [p for p in c.points if p in a.table.blocks], c.curves[0]))
    if learned.answers(a):
        speed = clean(f"Images/s: {answer.headline(a)}", _MOST)
        return Lead(answer.opening(a), "", speed, numbers, checked, "", "")
    others = [answer.headline(a)] if compared[1:] and c.decides else []
    full = answer.full_from(a)
    if full is not None and c.world_size >= full:
        others.append(f"From {ranks(full)} on the emulation measures this machine's cores.")
    verdict = clean(_verdict(a, c), _MOST) if c.decides else ""
    rest = clean(" ".join(others), _MOST)
    return Lead(answer.opening(a), verdict, rest, numbers, checked, why(a), onward(a))


def _verdict(a: Analysis, c: Comparison) -> str:
    conditions = "; ".join(c.words)
    where = f"{c.samples_per_rank} images per rank{f' ({conditions})' if conditions else ''}"
    estimate = f"{verdicts.over(c.reference, c.candidate)} = {interval(c.estimate, ratio)}"
    n = count(c.paired.n, "launch")
    return f"{verdicts.sentence(c)}. {estimate}; {n}, margin {rule(c.margin)}, {where}."


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
