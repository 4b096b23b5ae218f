"""Vocabulary of a report: statements, verdicts and the names of what is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.backends.catalogue import facts, parts
from bench.study.definition import Point
from bench.study.points import CURVES
from bench.study.power import MAX_BLOCKS
from bench.study.verdict import Comparison
from plots.analyse.study import Analysis
from plots.report.axes import transport_order
from plots.report.format import (
    count,
    ends,
    every,
    percent,
    rule,
)


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
    """Name reference and candidate: by their backends where these differ, arms of one cell by both.

    Of a study that compares several arms of one cell there is no one candidate.
    """
    if isinstance(of, Analysis) and of.reference == of.candidate:
        pairs = {(c.reference_point.arm, c.candidate_point.arm) for c in of.comparisons}
        if len(pairs) != 1:
            return "its reference arm", "an arm"
        arms = pairs.pop()
    else:
        arms = (of.reference_point.arm, of.arm) if isinstance(of, Comparison) else ("", "")
    if of.reference == of.candidate:
        return f"{of.reference} ({arms[0]})", f"{of.candidate} ({arms[1]})"
    if parts(of.reference).backend == parts(of.candidate).backend:
        return of.reference, of.candidate
    return facts(of.reference).short_label, facts(of.candidate).short_label


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


def word(c: Comparison) -> str:
    """Name the verdict: 'Horovod faster', 'DDP faster', 'Equal within 2 %' or 'Not settled'.

    'No verdict planned' of a study whose few launches draw a curve.
    """
    if not c.decides:
        return "No verdict planned"
    reference, candidate = sides(c)
    faster = candidate if c.paired.ratio > 1 else reference
    words = {"faster": f"{faster} faster", "equal": f"Equal within {rule(c.margin)}"}
    return words.get(c.verdict, "Not settled")


def sentence(c: Comparison) -> str:
    """State the verdict, its share and interval.

    'Horovod faster: 5.3 % [0.6, 10.1]', of the faster side over the other; else of the candidate
    over the reference.
    """
    text = word(c)
    if c.decides and c.paired.n < c.needs:
        text += f": needs {c.needs} launches"
    elif c.decides:
        e = c.estimate
        values = (e.value, e.low or e.value, e.high or e.value)
        if c.verdict == "faster" and e.value < 1:
            values = (1 / e.value, 1 / values[2], 1 / values[1])
        value, low, high = (100 * (x - 1) for x in values)
        text += f": {round(value, 1) + 0.0:.1f} % [{', '.join(ends(low, high, 1, 0.0))}]"
    return text


def tally(rows: Sequence[Comparison]) -> str:
    """Count verdicts: 'A faster at 22 of 26 points (by 1.8 to 4.4 %), Not settled at 4'."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in rows:
        groups[word(c)].append(c)
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


def prospect(c: Comparison) -> str:
    """Estimate in a sentence how many launches would settle it; '' where settled, or not begun."""
    if c.settled or c.chance is None:
        return ""
    if c.blocks_to_settle is None:
        return f"More than {MAX_BLOCKS:,} launches would be needed"
    needed = f"About {c.blocks_to_settle:,} launches would settle it"
    if c.paired.n >= c.max_blocks:
        return f"{needed}, in a new study"
    by_then = f"the chance by the last look, {c.max_blocks}, is {100 * c.chance:.0f} %"
    return f"{needed}; {by_then}, were ratio and noise the true ones"


def standing(whole: Iterable[Statement]) -> str:
    """Sum up all checks in one line: 'Holds: equal work, in turns. In doubt: 1 session.'"""
    checked = [one for one in whole if one.kind == "check"]
    names = {"Holds": True, "In doubt": False, "Not known": None}
    each = {key: [c.name for c in checked if c.holds is holds] for key, holds in names.items()}
    return " ".join(f"{key}: {', '.join(some)}." for key, some in each.items() if some)
