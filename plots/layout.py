"""Where things stand in a figure and how a cell looks: pure, so that figures.py only draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from plots.stats import Estimate

# Okabe & Ito (2008), safe for colour-blind readers; one colour AND one marker per cell, the same in every figure.
CELLS = {
    "single": ("#000000", "P"),
    "ddp/mpi": ("#0072B2", "o"),
    "horovod/mpi": ("#D55E00", "^"),
    "ddp/gloo": ("#56B4E9", "s"),
    "horovod/gloo": ("#E69F00", "D"),
}
_OTHERS = (("#009E73", "v"), ("#CC79A7", "X"), ("#F0E442", "h"))
_LONGEST = 1.8  # times the largest value (or 1 over it, of the smallest): how far a bar may stretch an axis
_LOG_FROM = 4  # from more than this ratio of ranks on, a true scale crowds the small ones and both axes become logarithmic


def look(cell: str, cells: Sequence[str]) -> dict[str, Any]:
    """Colour and marker of a cell; one that has none of its own takes the next of the spare ones."""
    others = [c for c in cells if c not in CELLS]
    colour, marker = CELLS[cell] if cell in CELLS else _OTHERS[others.index(cell) % len(_OTHERS)]
    return {"color": colour, "marker": marker}


class Scale:
    """Where a rank count or batch stands on the x axis: equally spaced, or true to scale where an ideal line is drawn."""

    def __init__(self, values: Iterable[int], true_scale: bool, axis_inches: float) -> None:
        self.values = sorted(set(values))
        self.log = true_scale and self.values[-1] / self.values[0] > _LOG_FROM
        self._true = true_scale
        at = [self.at(v) for v in self.values]
        gaps = [b - a for a, b in itertools.pairwise(at)] or [1.0]
        self.ends = at[0] - 0.45 * min(gaps), at[-1] + 0.45 * min(gaps)
        marker = 0.11 * (self.ends[1] - self.ends[0]) / axis_inches
        # neighbours' intervals stay apart, and nearer to their own tick than to the next
        self.dodge = min(marker, 0.16 * min(gaps))

    def at(self, value: int) -> float:
        if self.log:
            return math.log2(value)
        return float(value if self._true else self.values.index(value))


def bars(values: Sequence[Estimate]) -> list[list[float]] | None:
    """Lengths below and above each value; None where no value has an interval."""
    if all(e.low is None for e in values):
        return None
    low = [0.0 if e.low is None else e.value - e.low for e in values]
    return [low, [0.0 if e.high is None else e.high - e.value for e in values]]


def reach(estimates: Sequence[Estimate], *others: float) -> tuple[float, float]:
    """Ends of an axis that holds every value, and every bar unless it is so long (n = 2) that the values would flatten."""
    values = [*(e.value for e in estimates), *others]
    low = min([*others, *(e.value if e.low is None else e.low for e in estimates)])
    high = max([*others, *(e.value if e.high is None else e.high for e in estimates)])
    return max(low, min(values) / _LONGEST) / 1.03, min(high, max(values) * _LONGEST) * 1.03


def cut_bars(estimates: Sequence[Estimate], low: float, high: float) -> list[str]:
    """The note that a figure owes its reader where a bar leaves the frame."""
    out = any(e.low is not None and e.high is not None and (e.low < low or e.high > high) for e in estimates)
    return ["Bars that leave the frame are cut at it; the tables have their ends."] if out else []
