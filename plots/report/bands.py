"""A prediction beside what was measured: its row and columns, its band, where it is crossed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plots.predict.costs import Array
from plots.report.columns import Column
from plots.report.format import percent, rate, rule
from plots.report.tables import BATCH, POINT, with_interval

BAND = (0.05, 0.5, 0.95)  # of the draws: 90 % around the median
NO_GRID = "its images divide among no power of two, so no criterion is looked for"
GRID: Array = 2.0 ** np.arange(1, 13, dtype=float)  # ranks at which a criterion is looked for


@dataclass(frozen=True, kw_only=True)
class RowWithBand:
    """What was measured, if anything, and the model's median and band."""

    world_size: int
    use: str  # 'fitted', 'predicted'
    images_per_s: float | None
    efficiency: float | None
    predicted_images_per_s: float
    predicted_efficiency: float
    low: float
    high: float

    @property
    def points_off(self) -> float | None:
        """Of efficiency: predicted less measured, in percent."""
        measured = self.efficiency
        return None if measured is None else 100 * (self.predicted_efficiency - measured)

    @property
    def inside(self) -> bool | None:
        """Whether the measured efficiency is in the band."""
        measured = self.efficiency
        return None if measured is None else self.low <= measured <= self.high


_OFF = (
    Column("points_off", "points off", "{:+.1f}".format),
    Column("inside", "in the band", lambda inside: "yes" if inside else "no"),
)
BESIDE = (
    Column("world_size", "ranks", each=True),
    Column("use", "row", each=True),
    Column("images_per_s", "images/s", rate),
    Column("predicted_images_per_s", "model", rate),
    Column("efficiency", "efficiency", percent),
    Column("predicted_efficiency", "model's", percent),
    Column("low", "from", percent),
    Column("high", "to", percent),
    *_OFF,
)
PREDICTIONS = (
    Column("curve", "curve"),
    *POINT,
    *BATCH,
    Column("use", "row", each=True),
    Column("measured_efficiency", "efficiency", with_interval(percent)),
    Column("predicted_efficiency", "predicted", percent),
    Column("low", "from", percent),
    Column("high", "to", percent),
    *_OFF,
    Column("doubt", "doubt"),
)


def crossing(draws: Array, criterion: float, grid: Array = GRID) -> str:
    """At how many ranks of `grid` efficiency [draw, rank] is below a criterion, in words."""
    if not len(grid):
        return NO_GRID

    def first(efficiency: Array) -> str:
        below = grid[efficiency < criterion]
        return f"{below[0]:,.0f}" if len(below) else f"more than {grid[-1]:,.0f}"

    low, middle, high = map(first, np.quantile(draws, BAND, axis=0))
    return f"efficiency falls below {rule(criterion)} at {middle} ranks [{low} to {high}]"
