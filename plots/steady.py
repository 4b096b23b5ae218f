"""Was a run steady? Warm-up cut, level shift and outlying steps: they flag a run and never drop a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_KEEP = 5  # batches that must remain: MSER's statistic is 0 for one batch and would always choose the end (White 1997)
_ENOUGH_FOR_BATCHES = 50  # steps; below that batches of five are too few to judge, and single steps are used
SHIFT_LIMIT = 0.02
_SHIFT_RESOLVED = 3.0  # standard errors; a few noisy steps differ by 2 % for no reason


@dataclass(frozen=True)
class Steadiness:
    """Verdict on the timed steps of one run, with what it rests on."""

    steady: bool
    mser_cut_steps: int
    level_shift: float
    outlier_steps: int
    reason: str


def mser_cut(values: Sequence[float], batch: int = 5) -> int:
    """Steps to cut so that the rest has the least standard error: MSER on means of `batch` steps (White 1997)."""
    n = len(values) // batch
    means = np.asarray(values[: n * batch], float).reshape(n, batch).mean(axis=1)
    if n <= _KEEP:
        return 0
    scores = [float(np.var(means[d:])) / (n - d) for d in range(n - _KEEP + 1)]
    return int(np.argmin(scores)) * batch


def level_shift(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Level of `after` over that of `before`, minus one, and how many standard errors that is (Welch's, on logs)."""
    if min(len(before), len(after)) < 2:
        return 0.0, 0.0
    first, second = (np.log(np.asarray(x, float)) for x in (before, after))
    shift = float(second.mean() - first.mean())
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    return math.expm1(shift), abs(shift) / error if error > 0 else math.inf if shift else 0.0


def tukey_outliers(values: Sequence[float]) -> list[float]:
    """Values beyond 1.5 interquartile ranges from the quartiles (Tukey 1977), in their order."""
    q1, q3 = np.percentile(values, [25, 75])
    fence = 1.5 * (q3 - q1)
    return [v for v in values if v < q1 - fence or v > q3 + fence]


def judge(step_seconds: Sequence[float]) -> Steadiness:
    """Flag a run whose timed steps still warm up or drift; on the slowest rank's seconds, structural warm-up already cut.

    Not steady: the halves differ, or MSER would cut more than half and what it cuts differs from the rest; in both cases
    by more than 2 % and beyond noise. Without that condition noise alone makes MSER cut more than half in one run of ten
    (20 steps). All timed steps are judged, because all of them are in the reported throughput.
    """
    n = len(step_seconds)
    cut = mser_cut(np.log(np.asarray(step_seconds, float)).tolist(), 5 if n >= _ENOUGH_FOR_BATCHES else 1)
    for at in [n // 2, *([cut] if cut > n / 2 else [])]:
        shift, errors = level_shift(step_seconds[:at], step_seconds[at:])
        if abs(shift) > SHIFT_LIMIT and errors > _SHIFT_RESOLVED:
            reason = f"step time shifts by {100 * shift:+.1f} % at step {at} of {n}"
            return Steadiness(False, cut, shift, len(tukey_outliers(step_seconds)), reason)
    return Steadiness(
        True, cut, level_shift(step_seconds[: n // 2], step_seconds[n // 2 :])[0], len(tukey_outliers(step_seconds)), ""
    )
