"""Was a run steady, and were a cell's runs? What is found is flagged, and no number is dropped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bench.study import stats

ENOUGH_STEPS, ENOUGH_WINDOWS = 10, 3  # timed, of a run; of fewer a warm-up cannot be told
LIMIT = 0.02  # a change of the run's level that matters
# standard errors; noise alone then flags at most 4 % of runs of 15 steps or more (simulated)
_RESOLVED = 4.0
# batches that must remain: MSER's statistic is 0 for one and would always choose the end
_KEEP = 5
_ENOUGH_FOR_BATCHES = 50  # steps; of fewer, batches of five are too few, and steps are judged
_NO_VARIANCE = 1e-24  # of the mean square: what rounding leaves of numbers that are equal

Logarithms = np.ndarray[Any, np.dtype[np.float64]]
Floats = Sequence[float] | Logarithms


@dataclass(frozen=True)
class Steadiness:
    """Verdict on the timed steps of one run, with what it rests on."""

    steady: bool
    not_steady_reason: str
    mser_cut_steps: int
    level_shift: float  # second half over the first, minus 1
    outlier_steps: int


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Seconds of a step in the last window over the first, over all runs of a cell."""

    cell: str
    runs: int
    judged_runs: int  # with enough steps and windows
    over_first: stats.Paired | None  # one value a run; None where no run is judged
    holm_p: float | None = None  # over the cells of the page

    @property
    def changes(self) -> bool:
        """Whether its runs as a whole still changed while they were timed."""
        return self.holm_p is not None and self.holm_p <= stats.ALPHA


def trends(runs: pd.DataFrame) -> list[Trend]:
    """Every cell's trend: runs too noisy to be flagged one by one show together what they share."""
    by_cell: list[Trend] = []
    for cell, rows in runs.groupby("cell"):
        judged = rows[rows["judged"]]
        last = judged["last_over_first"].tolist()
        pooled = stats.paired_ratio(numerator=last, denominator=[1.0] * len(last)) if last else None
        by_cell.append(
            Trend(cell=str(cell), runs=len(rows), judged_runs=len(last), over_first=pooled)
        )
    p_values = {t.cell: t.over_first.t_p for t in by_cell if t.over_first and t.over_first.n > 1}
    adjusted = stats.holm([p for p in p_values.values() if p is not None])
    corrected = dict(zip(p_values, adjusted, strict=True))
    return [replace(t, holm_p=corrected.get(t.cell)) for t in by_cell]


def mser_cut(values: Floats, batch: int = 5) -> int:
    """Steps to cut for the least standard error: MSER on means of `batch` (White 1997)."""
    n = len(values) // batch
    if n <= _KEEP:
        return 0
    means = np.asarray(values[: n * batch], float).reshape(n, batch).mean(axis=1)
    # var(means[d:]) for every d at once, from sums taken from the end; centred first, so that the
    # squares do not cancel
    centred = (means - means.mean())[::-1]
    left = np.arange(1, n + 1)
    variances = np.cumsum(centred**2) / left - (np.cumsum(centred) / left) ** 2
    variances[variances < _NO_VARIANCE * float(np.mean(means**2))] = 0.0
    return int(np.argmin((variances / left)[::-1][: n - _KEEP + 1])) * batch


def tukey_outliers(values: Floats) -> list[float]:
    """Values beyond 1.5 interquartile ranges from the quartiles (Tukey 1977), in their order."""
    sample = np.asarray(values, float)
    q1, q3 = np.percentile(sample, [25, 75])
    fence = 1.5 * (q3 - q1)
    return list(sample[(sample < q1 - fence) | (sample > q3 + fence)].tolist())


def judge(step_seconds: Floats) -> Steadiness:
    """Flag a run whose timed steps still warm up or drift; on the job's seconds of each.

    Not steady: the two halves differ, or what MSER would cut moves the run's mean; in both cases by
    more than 2 % and beyond noise, which alone makes MSER cut more than half in one run of ten of
    20 steps. All timed steps are judged, because all of them are in the reported throughput.
    """
    logs = np.log(np.asarray(step_seconds, float))
    n = len(logs)
    first, second = logs[: n // 2], logs[n // 2 :]
    shift = math.expm1(second.mean() - first.mean()) if n > 3 else 0.0
    cut = mser_cut(logs, 5 if n >= _ENOUGH_FOR_BATCHES else 1)
    moved = math.expm1(logs[cut:].mean() - logs.mean())
    reasons = []
    if abs(shift) > LIMIT and _resolved(first, second, first.var(ddof=1)):
        reasons.append(f"second half {100 * shift:+.1f} % against the first")
    # a warm-up's own spread is no noise
    if abs(moved) > LIMIT and _resolved(logs[:cut], logs[cut:], logs[cut:].var(ddof=1)):
        reasons.append(
            f"without its first {cut} of {n} steps (MSER) the mean step is {100 * moved:+.1f} %"
        )
    outliers = len(tukey_outliers(step_seconds))
    return Steadiness(not reasons, "; ".join(reasons), cut, shift, outliers)


def _resolved(first: Logarithms, second: Logarithms, noise: float) -> bool:
    """Whether two means differ by more Welch's errors than that; `noise`: the first's variance."""
    error = math.sqrt(noise / len(first) + float(second.var(ddof=1)) / len(second))
    return abs(float(second.mean() - first.mean())) > _RESOLVED * error
