"""Conditions of the runs: cells that still changed while timed, machines that were not quiet.

Both are flagged, and no number is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bench.record.quiet import NOISY
from bench.study import stats

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


def disturbed(runs: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Choose runs on machines that were not quiet, worst last; count those where it is known."""
    runs_with_share = runs[runs["others_share"].notna()]
    shares = runs_with_share["others_share"].astype(float)
    noisy = runs_with_share.assign(others_share=shares)[shares > NOISY].sort_values("others_share")
    return noisy, len(runs_with_share)
