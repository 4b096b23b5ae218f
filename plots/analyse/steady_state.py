"""Was a run steady? Warm-up cut, level shift and outlying steps: they flag a run and never drop a
number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LIMIT = 0.02  # a change of the run's level that matters
# standard errors; noise alone then raises the flag in at most 4 % of runs of 15 steps or more
# (simulated)
_RESOLVED = 4.0
# batches that must remain: MSER's statistic is 0 for one batch and would always choose the end
# (White 1997)
_KEEP = 5
_ENOUGH_FOR_BATCHES = (
    50  # steps; below that batches of five are too few to judge, and single steps are used
)

_NO_VARIANCE = 1e-24  # of the mean square: what rounding leaves of numbers that are equal

Logs = np.ndarray[Any, np.dtype[np.float64]]
Floats = Sequence[float] | Logs


@dataclass(frozen=True)
class Steadiness:
    """Verdict on the timed steps of one run, with what it rests on."""

    steady: bool
    mser_cut_steps: int
    level_shift: float
    outlier_steps: int
    reason: str


def mser_cut(values: Floats, batch: int = 5) -> int:
    """Steps to cut so that the rest has the least standard error: MSER on means of `batch` steps
    (White 1997).
    """
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
    found = np.asarray(values, float)
    q1, q3 = np.percentile(found, [25, 75])
    fence = 1.5 * (q3 - q1)
    return list(found[(found < q1 - fence) | (found > q3 + fence)].tolist())


def judge(step_seconds: Floats) -> Steadiness:
    """Flag a run whose timed steps still warm up or drift; on the slowest rank's seconds,
    structural warm-up already cut.

    Not steady: the two halves differ, or what MSER would cut moves the run's mean; in both cases by
    more than 2 % and beyond noise. (Without that condition noise alone makes MSER cut more than
    half in one run of ten of 20 steps.) All timed steps are judged, because all of them are in the
    reported throughput.
    """
    logs = np.log(np.asarray(step_seconds, float))
    n = len(logs)
    cut = mser_cut(logs, 5 if n >= _ENOUGH_FOR_BATCHES else 1)
    shift, errors = _shift(logs[: n // 2], logs[n // 2 :])
    moved, cut_errors = _moved(logs, cut)
    reasons = []
    if abs(shift) > LIMIT and errors > _RESOLVED:
        reasons.append(f"second half {100 * shift:+.1f} % against the first")
    if abs(moved) > LIMIT and cut_errors > _RESOLVED:
        reasons.append(
            f"without its first {cut} of {n} steps (MSER) the mean step is {100 * moved:+.1f} %"
        )
    return Steadiness(
        not reasons, cut, shift, len(tukey_outliers(step_seconds)), "; ".join(reasons)
    )


def _shift(first: Logs, second: Logs) -> tuple[float, float]:
    """Second over first, minus one, and how many standard errors that is (Welch's)."""
    if min(len(first), len(second)) < 2:
        return 0.0, 0.0
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    return _ratio(float(second.mean() - first.mean()), error)


def _moved(logs: Logs, cut: int) -> tuple[float, float]:
    """Mean after the cut over the mean of all, minus one; its error from the noise after the cut,
    as before it is warm-up.
    """
    before, after = logs[:cut], logs[cut:]
    if cut == 0 or len(after) < 2:
        return 0.0, 0.0
    error = float(after.std(ddof=1)) * math.sqrt(1 / len(before) + 1 / len(after))
    _, errors = _ratio(float(after.mean() - before.mean()), error)
    return math.expm1(float(after.mean() - logs.mean())), errors


def _ratio(difference: float, error: float) -> tuple[float, float]:
    return math.expm1(difference), abs(
        difference
    ) / error if error > 0 else math.inf if difference else 0.0
