"""Where things stand in a figure and how a cell looks: pure, so that figures/ only draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from bench.backends import catalogue
from bench.backends.facts import Look
from bench.study.stats import Estimate

Estimates = Sequence[Estimate]
Extent = tuple[float, float]  # both ends of an axis
Style = dict[str, Any]  # as matplotlib takes it
_TRANSPORTS = ("", "mpi", "gloo", "nccl")  # the order of cells in legends and of rows
_SPARE = (  # for cells without a look of their own in the catalogue of backends
    Look(colour="#999933", marker="h", marker_size=9.5, line_width=2.2),
    Look(colour="#882255", marker="*", marker_size=7.5, line_width=1.9),
    Look(colour="#44AA99", marker="p", marker_size=6.0, line_width=1.7),
)
_LINES: dict[str, Any] = {"gloo": (0, (5, 2)), "nccl": (0, (5, 1.5, 1, 1.5))}  # by transport
# times the largest value (or 1 over it, of the smallest): how far a bar may stretch an axis
_LONGEST = 1.8
_LOG_FROM = 4  # above this ratio a linear axis crowds the small values
_DOUBLE_FROM = 3.0  # a ratio axis that spans more is marked at powers of two
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_FEW = 4  # powers of two: too few marks


def transport_order(transport: str) -> tuple[int, str]:
    """Make a sort key of a transport; transports that are not known go last."""
    known = _TRANSPORTS.index(transport) if transport in _TRANSPORTS else len(_TRANSPORTS)
    return known, transport


def in_order(cells: Iterable[str]) -> list[str]:
    """Sort cells as the catalogue lists them, transport by transport, then those not known."""
    names = set(cells)
    known = sorted(catalogue.cells(), key=lambda c: transport_order(catalogue.parts(c).transport))
    return [cell for cell in known if cell in names] + sorted(names - set(known))


@dataclass(frozen=True)
class Preset:
    """How wide a figure is drawn, with which letters, and what it is given in place of its own."""

    width_in: float | None = None  # None: as the kind of figure wants
    letters: float = 1.0  # times as large, markers too
    titled: bool = True  # with title, conditions and foot; a paper has them in its caption
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # in legends
    colours: Mapping[str, str] = field(default_factory=dict)  # of cells


PRESETS = {
    "page": Preset(),  # as in a report
    "paper": Preset(width_in=3.5, letters=0.85, titled=False),
    "phone": Preset(width_in=4.0, letters=0.9),
    "slide": Preset(width_in=12.0, letters=1.6),
}
_PRESET: ContextVar[Preset] = ContextVar("preset", default=PRESETS["page"])
preset = _PRESET.get


@contextmanager
def drawn_as(one: Preset) -> Iterator[None]:
    """Provide this width, these letters, names and colours for all that is drawn inside."""
    token = _PRESET.set(one)
    try:
        yield
    finally:
        _PRESET.reset(token)


def look(cell: str, cells: Sequence[str], marker_size: float | None = None) -> Style:
    """Choose the look of a cell's line, markers and bars: its own, or else a spare one."""
    spare = [c for c in cells if catalogue.look(c) is None]
    appearance = catalogue.look(cell) or _SPARE[spare.index(cell) % len(_SPARE)]
    backend, transport, _ = catalogue.parts(cell)
    facts = catalogue.CATALOGUE.get(backend)
    colour = preset().colours.get(cell, appearance.colour)
    size = preset().letters * (marker_size or appearance.marker_size)
    return {
        "color": colour,
        "marker": appearance.marker,
        "markersize": size,
        "markerfacecolor": colour if facts is None or facts.filled_marker else "none",
        "markeredgewidth": 1.0,  # of caps as well
        "linestyle": _LINES.get(transport, "-"),
        "linewidth": appearance.line_width,
        "elinewidth": 0.9,
        "capsize": 0.5 * size,  # wider than a marker that lies inside
        "zorder": 3 - appearance.marker_size / 20,
    }


def is_log(values: Sequence[int]) -> bool:
    """Check whether an axis of these ranks or batches is logarithmic."""
    return max(values) / min(values) > _LOG_FROM


def ends(values: Sequence[int], log: bool) -> Extent:
    """Find the ends of an axis with each rank count or batch at its true place, and some room."""
    at = [math.log2(v) if log else float(v) for v in sorted(set(values))]
    room = 0.45 * min((b - a for a, b in itertools.pairwise(at)), default=1.0)
    low, high = at[0] - room, at[-1] + room
    return (2**low, 2**high) if log else (low, high)


def apart(at: Sequence[float], values: Sequence[int], steps: float) -> list[float]:
    """Shift the places a little, so that intervals of several lines do not hide one another."""
    shift = 0.08 * steps
    if is_log(values):
        return [x * 2**shift for x in at]
    return [x + 0.5 * shift * (max(values) - min(values)) for x in at]


def bars(values: Estimates) -> list[list[float]] | None:
    """Measure lengths below and above each value; None where no value has an interval to show."""
    if all(e.shown is None for e in values):
        return None
    lengths = [(e.value - e.shown[0], e.shown[1] - e.value) if e.shown else (0, 0) for e in values]
    return [[below for below, _ in lengths], [above for _, above in lengths]]


def dots(e: Estimate) -> tuple[float, ...]:
    """List the single blocks, where they are too few for an interval."""
    return e.blocks if e.shown is None and e.n > 1 else ()


def reach(estimates: Estimates, *others: float) -> Extent:
    """Find the ends of a log axis that holds every value and block; no long bar flattens them."""
    values = [*(v for e in estimates for v in (e.value, *dots(e))), *others]
    low = min([*values, *(e.shown[0] for e in estimates if e.shown)])
    high = max([*values, *(e.shown[1] for e in estimates if e.shown)])
    low, high = max(low, min(values) / _LONGEST), min(high, max(values) * _LONGEST)
    room = max(1.02, (high / low) ** 0.06)
    return low / room, high * room


def cut(e: Estimate, frame: Extent) -> list[int]:
    """Name the ends of the frame that cut an estimate's bar: 0 is the low one, 1 the high one."""
    if e.shown is None:
        return []
    return [end for end, out in enumerate((e.shown[0] < frame[0], e.shown[1] > frame[1])) if out]


def ratio_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Choose marks, such as 1, of a log axis of ratios: round steps, of long axes powers of 2."""
    if high / low > _DOUBLE_FROM:
        whole = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
        if len(whole) > _FEW:
            return [2.0**k for k in whole if k % -(-len(whole) // most) == 0]
        return [t for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0) if low <= t <= high]
    first = next((i for i, s in enumerate(_STEPS) if (high - low) / s <= most), len(_STEPS) - 1)
    marks, *finer = (_multiples(step, low, high) for step in _STEPS[first::-1])
    if len(marks) > 1:
        return marks
    several = next((marks for marks in finer if len(marks) > 1), [])  # one mark gives no scale
    return sorted(sorted(several, key=lambda mark: abs(mark - 1))[:2])


def _multiples(step: float, low: float, high: float) -> list[float]:
    return [round(k * step, 2) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def legible(values: Sequence[int], log: bool, letters: float) -> list[int]:
    """Choose those of different values that an axis has room for, where `letters` fit along it; the
    largest is always among them.
    """
    at = {v: math.log2(v) if log else float(v) for v in sorted(set(values))}
    low, high = ends(values, log)
    span = math.log2(high / low) if log else high - low
    kept: list[int] = []
    for value in reversed(at):
        room = letters * abs(at[kept[-1]] - at[value]) / span if kept else math.inf
        if room > 1 + len(str(value)):
            kept.append(value)
    return kept[::-1]
