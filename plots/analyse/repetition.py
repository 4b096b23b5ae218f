"""Where more time would narrow the ratios: in steps of a run, or in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.study.repetition import best_repetitions
from plots.analyse.comparison import Comparison
from plots.analyse.points import by_point


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The paired variance by level, pooled over comparisons; a run and its block are one level."""

    step_share: float  # of the paired variance: what steps inside the runs make of it
    autocorrelation: float  # of neighbouring steps, median over runs
    steps: float  # of a run, median
    # of a run, for the least error in a given time; None: without bound, or no wall time is known
    best_steps: float | None


def advise(runs: pd.DataFrame, comparisons: Iterable[Comparison]) -> Repetition | None:
    """From the runs of every comparison that has a spread between blocks; None without one."""
    rows_of = dict(by_point(runs))
    squares = inside = freedom = seconds = starts = 0.0
    used: list[pd.DataFrame] = []
    for c in comparisons:
        arms = [rows_of[point] for point in c.points]
        within = sum(float(arm["mean_log_variance"].mean()) for arm in arms)
        if not c.paired.sd_log or np.isnan(within):
            continue
        df = c.paired.n - 1
        freedom += df
        squares += df * c.paired.sd_log**2
        inside += df * within
        seconds += sum(float(arm["step_seconds_mean"].mean()) for arm in arms)
        starts += sum(float(arm["start_seconds"].astype(float).mean()) for arm in arms)
        used += arms
    if not freedom:
        return None
    every = pd.concat(used)
    steps = float(every["steps"].median())
    t2 = inside / freedom * steps, (squares - inside) / freedom
    (best,) = best_repetitions(t2, (seconds, starts))
    return Repetition(
        step_share=min(1.0, inside / squares),
        autocorrelation=float(every["step_autocorrelation"].median()),
        steps=steps,
        best_steps=best if np.isfinite(best) else None,
    )
