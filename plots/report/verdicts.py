"""Vocabulary of a report: statements, verdicts and the names of what is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.study import words
from bench.study.comparison import Comparison
from bench.study.definition import Point
from bench.study.points import CURVES
from bench.study.words import count
from plots.analyse.study import Analysis
from plots.report.axes import transport_order
from plots.report.format import every, percent


@dataclass(frozen=True)
class Statement:
    """A sentence or two on a study.

    `kind`: answer, others, machine, scaling, training, emulated, why, next, note or check.
    """

    kind: str
    text: str
    holds: bool | None = None  # of a check; None where nothing tells
    name: str = ""  # of a check, in a few words
    command: str = ""  # what to type next


def line_label(a: Analysis, point: Point) -> str:
    """Name the line of a point in a figure: its cell, and an arm that not all cells have."""
    arm = a.loaded.study.arms.get(point.arm)
    return f"{point.cell} ({point.arm})" if arm and arm.cells else point.cell


def page_arm(a: Analysis, point: Point) -> str:
    """Name the arm whose figure has a point: its own, or the one that an arm of few cells names."""
    arm = a.loaded.study.arms.get(point.arm)
    return arm.over or point.arm if arm and arm.cells else point.arm


def sides(of: Analysis | Comparison) -> tuple[str, str]:
    """Name reference and candidate of a study or a comparison.

    Of a study that compares several arms of one cell there is no one candidate.
    """
    if isinstance(of, Comparison):
        return words.sides(of.reference_point, of.candidate_point)
    pairs = {(c.reference_point.arm, c.candidate_point.arm) for c in of.comparisons}
    if of.reference == of.candidate and len(pairs) != 1:
        return "its reference arm", "an arm"
    arms = pairs.pop() if of.reference == of.candidate else ("", "")
    cells = zip((of.reference, of.candidate), arms, strict=True)
    a, b = (Point(cell, arm, 1, 1) for cell, arm in cells)
    return words.sides(a, b)


def over(of: Analysis | Comparison) -> str:
    """Name the ratio: 'B / A', or 'x/b over x/a' of cells."""
    first, second = sides(of)
    return f"{second} over {first}" if "/" in first + second else f"{second} / {first}"


def versus(of: Analysis | Comparison) -> str:
    """Name the candidate against the reference."""
    return " against ".join(reversed(sides(of)))


def emulation(a: Analysis, rows: Iterable[Any] | None = None) -> str:
    """Name the mark of emulation of points or comparisons together, or of all runs; '' of none."""
    slept = {a.emulated()} if rows is None else {a.emulated(row.arm) for row in rows}
    return "" if True not in slept else "Emulated in part" if False in slept else "Emulated"


def marked(a: Analysis, rows: Iterable[Any] | None, text: str) -> str:
    """Put the mark of emulated runs before a text that speaks of such runs."""
    return ": ".join(filter(None, (emulation(a, rows), text)))


def by_weight(a: Analysis) -> list[Comparison]:
    """Sort the comparisons: the primary one, then most ranks, weak scaling before strong."""

    def weight(c: Comparison) -> tuple[object, ...]:
        curve = min(map(CURVES.index, c.curves))
        return not c.primary, -c.world_size, curve, transport_order(c.transport)

    return sorted(a.comparisons, key=weight)


def tally(rows: Sequence[Comparison]) -> str:
    """Count verdicts: 'A faster at 22 of 26 points (by 1.8 to 4.4 %), Not settled at 4'."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in rows:
        groups[words.word(c)].append(c)
    counts: list[str] = []
    for verdict, group in sorted(groups.items(), key=lambda x: (not x[1][0].settled, -len(x[1]))):
        place = f"{len(group)}" if counts else f"{len(group)} of {count(len(rows), 'point')}"
        if len(group) == len(rows):
            place = every(len(rows), "point")
        gains = sorted(max(c.paired.ratio, 1 / c.paired.ratio) - 1 for c in group)
        both = dict.fromkeys(percent(g).removesuffix(" %") for g in (gains[0], gains[-1]))
        by = f" (by {' to '.join(both)} %)" if group[0].verdict == "faster" else ""
        counts.append(f"{verdict} at {place}{by}")
    return ", ".join(counts)


def section(a: Analysis, title: str) -> str:
    """Entitle a section of numbers: all of an emulated study says so."""
    return f"{title} (emulated)" if a.emulated() else title


def standing(whole: Iterable[Statement]) -> str:
    """Sum up all checks in one line: 'Holds: equal work, in turns. In doubt: 1 session.'"""
    checked = [one for one in whole if one.kind == "check"]
    names = {"Holds": True, "In doubt": False, "Not known": None}
    each = {key: [c.name for c in checked if c.holds is holds] for key, holds in names.items()}
    return " ".join(f"{key}: {', '.join(some)}." for key, some in each.items() if some)
