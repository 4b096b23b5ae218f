"""Where things stand in a figure and how a cell looks: pure, so that figures/ only draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
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
    """How wide a figure is drawn, with which letters and how much text."""

    width_in: float
    letters: float = 1.0  # times 9 points, markers too
    titled: bool = True  # with title and foot; a paper has them in its caption
    alone: bool = False  # with workload and machine, which a page says once

    @property
    def narrow(self) -> bool:
        """Whether a line holds fewer than some 60 letters."""
        return self.width_in / self.letters < 4.5


PRESETS = {  # a page shows a figure in the size in which it is drawn
    "page": Preset(width_in=5.75),  # two beside one another on 1200 pixels
    "phone": Preset(width_in=3.6),  # 346 pixels
    "paper": Preset(width_in=3.5, letters=0.85, titled=False),
    "slide": Preset(width_in=12.0, letters=1.6),
}
_PRESET: ContextVar[Preset] = ContextVar("preset", default=PRESETS["page"])
preset = _PRESET.get


@contextmanager
def drawn_as(one: Preset) -> Iterator[None]:
    """Provide this width and these letters for all that is drawn inside."""
    token = _PRESET.set(one)
    try:
        yield
    finally:
        _PRESET.reset(token)


def look(cell: str, cells: Sequence[str], marker_size: float | None = None) -> Style:
    """Choose the look of a cell's line, markers and bars: its own, or else a spare one."""
    spare = [c for c in cells if catalogue.look(c) is None]
    appearance = catalogue.look(cell) or _SPARE[spare.index(cell) % len(_SPARE)]
    backend, transport = catalogue.parts(cell)
    facts = catalogue.CATALOGUE.get(backend)
    size = preset().letters * (marker_size or appearance.marker_size)
    return {
        "color": appearance.colour,
        "marker": appearance.marker,
        "markersize": size,
        "markerfacecolor": appearance.colour if facts is None or facts.filled_marker else "none",
        "markeredgewidth": 1.0,  # of caps as well
        "linestyle": _LINES.get(transport.partition(" ")[0], "-"),
        "linewidth": appearance.line_width,
        "elinewidth": 0.9,
        "capsize": 0.5 * size,  # wider than a marker that lies inside
        "zorder": 3 - appearance.marker_size / 20,
    }


def is_log(values: Sequence[int]) -> bool:
    """Check whether an axis of these ranks or batches is logarithmic."""
    return max(values) / min(values) > _LOG_FROM


def bars(values: Estimates) -> list[list[float]] | None:
    """Measure lengths below and above each value; None where no value has an interval to show."""
    if all(e.shown is None for e in values):
        return None
    lengths = [(e.value - e.shown[0], e.shown[1] - e.value) if e.shown else (0, 0) for e in values]
    return [[below for below, _ in lengths], [above for _, above in lengths]]


def dots(e: Estimate) -> tuple[float, ...]:
    """List the single launches, where they are too few for an interval."""
    return e.launches if e.shown is None and e.n > 1 else ()


def reach(estimates: Estimates, *others: float) -> Extent:
    """Find the ends of a log axis that holds every value and launch; no long bar flattens them."""
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
