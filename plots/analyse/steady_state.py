"""Whether a cell's runs still changed while timed: that is flagged, and no number is dropped."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bench.study import stats

ENOUGH_STEPS, ENOUGH_WINDOWS = 10, 3  # timed, of a run; of fewer a warm-up cannot be told
LIMIT = 0.02  # a change of a cell's level that matters


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Seconds of a step in the last window over the first, over all runs of a cell."""

    cell: str
    runs: int
    judged_runs: int  # with enough steps and windows
    over_first: stats.Paired | None  # one value a run; None where no run is judged

    @property
    def changes(self) -> bool:
        """Whether its runs as a whole still changed: by more than LIMIT, and beyond noise."""
        if self.over_first is None or abs(self.over_first.ratio - 1) <= LIMIT:
            return False
        ends = self.over_first.interval()
        return ends is not None and not ends[0] <= 1 <= ends[1]


def trends(runs: pd.DataFrame) -> list[Trend]:
    """Pool every cell's runs: too noisy one by one, they show together what they share."""
    by_cell: list[Trend] = []
    for cell, rows in runs.groupby("cell"):
        last = rows.loc[rows["judged"], "last_over_first"].tolist()
        pooled = stats.paired_ratio(numerator=last, denominator=[1.0] * len(last)) if last else None
        by_cell.append(
            Trend(cell=str(cell), runs=len(rows), judged_runs=len(last), over_first=pooled)
        )
    return by_cell
