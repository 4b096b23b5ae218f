"""Names that reports, tables and figures give to what they show: sides, lines, arms, sections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.backends.catalogue import TRANSPORTS
from bench.study import words
from bench.study.comparison import Comparison
from bench.study.definition import Point
from bench.study.points import CURVES
from plots.analyse.study import Analysis


def line_label(a: Analysis, point: Point) -> str:
    """Name a point's line in a figure: 'CELL', or 'CELL (ARM)' if not all cells have the arm."""
    arm = a.loaded.study.arms.get(point.arm)
    return f"{point.cell} ({point.arm})" if arm and arm.cells else point.cell


def page_arm(a: Analysis, point: Point) -> str:
    """Return the arm whose figure shows a point: its own; for an arm of only some cells, `over`."""
    arm = a.loaded.study.arms.get(point.arm)
    return arm.over or point.arm if arm and arm.cells else point.arm


def sides(of: Analysis | Comparison) -> tuple[str, str]:
    """Name reference and candidate of a study or a comparison.

    A study that compares arms, but not exactly one pair, gives 'its reference arm' and 'an arm'.
    """
    if isinstance(of, Comparison):
        return words.sides(*of.points)
    study = of.loaded.study
    if study.reference != study.candidate:
        return words.sides(*(Point(cell, "", 1, 1) for cell in (study.reference, study.candidate)))
    pairs = {
        tuple(p._replace(world_size=1, batch_per_rank=1) for p in c.points) for c in of.comparisons
    }
    return words.sides(*pairs.pop()) if len(pairs) == 1 else ("its reference arm", "an arm")


def over(of: Analysis | Comparison) -> str:
    """Name the ratio of candidate to reference: 'B / A', or 'B over A' if a name contains '/'."""
    first, second = sides(of)
    return f"{second} over {first}" if "/" in first + second else f"{second} / {first}"


def versus(of: Analysis | Comparison) -> str:
    """Name both sides: 'CANDIDATE against REFERENCE'."""
    return " against ".join(reversed(sides(of)))


def emulation(a: Analysis, rows: Iterable[Any] | None = None) -> str:
    """Say whether compute slept in the arms of `rows`: 'Emulated', 'Emulated in part' or ''.

    Without `rows`, all runs count as one arm.
    """
    slept = {a.emulated()} if rows is None else {a.emulated(row.arm) for row in rows}
    return "" if True not in slept else "Emulated in part" if False in slept else "Emulated"


def marked(a: Analysis, rows: Iterable[Any] | None, text: str) -> str:
    """Put 'Emulated: ' or 'Emulated in part: ' before a text on `rows`, as `emulation` tells."""
    return ": ".join(filter(None, (emulation(a, rows), text)))


def transport_order(transport: str) -> tuple[int, str]:
    """Make a sort key of a transport; transports that are not known go last."""
    known = ["", *TRANSPORTS]
    return known.index(transport) if transport in known else len(known), transport


def by_weight(a: Analysis) -> list[Comparison]:
    """Return the comparisons, primary first, sorted by falling ranks, then curve and transport."""

    def weight(c: Comparison) -> tuple[object, ...]:
        curve = min(map(CURVES.index, c.curves))
        return not c.primary, -c.world_size, curve, transport_order(c.transport)

    return sorted(a.comparisons, key=weight)


def section(a: Analysis, title: str) -> str:
    """Return a section's title, with ' (emulated)' if compute slept in all runs."""
    return f"{title} (emulated)" if a.emulated() else title
