"""Levels of repetition, from step over run to block: at which one is time spent best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

_MOST_CORRELATION = (
    0.95  # of neighbours: beyond it a run of any length is hardly more than one step
)


def level_variances(data: np.ndarray) -> tuple[list[float], list[float]]:
    """S2 and T2 of each level, the lowest first; `data` is [..., runs, steps], as many everywhere.

    S2 is the mean variance of a level's means, and T2 what the level adds to those below it
    (Kalibera & Jones 2013, section 6.2). An estimate of T2 below zero means that it adds nothing.
    """
    counts, s2 = data.shape[::-1], []
    while data.ndim:
        s2.append(float(np.mean(np.var(data, axis=-1, ddof=1))))
        data = data.mean(axis=-1)
    below = [0.0, *(square / count for square, count in zip(s2, counts, strict=True))]
    return s2, [square - part for square, part in zip(s2, below[:-1], strict=True)]


def best_repetitions(t2: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Repetitions at each level but the highest for the least error in a given time.

    `costs`: seconds of one step, then of starting one run, one block (Kalibera & Jones 2013,
    section 6.3). Infinite where the level above adds no variance.
    """
    return [
        math.sqrt(dear / cheap * max(low, 0.0) / high) if high > 0 else math.inf
        for (low, high), (cheap, dear) in zip(pairwise(t2), pairwise(costs), strict=True)
    ]


def autocorrelation(values: np.ndarray) -> float:
    """Correlation of neighbours, of lag 1; 0 of values that are all equal, or too few."""
    centred = values - values.mean()
    square = float(np.sum(centred**2))
    return float(np.sum(centred[1:] * centred[:-1])) / square if square > 0 else 0.0


def inflation(correlation: float) -> float:
    """Variance of a mean of steps over that of independent ones, for a process of first order."""
    rho = min(max(correlation, 0.0), _MOST_CORRELATION)
    return (1 + rho) / (1 - rho)


def mean_variance(values: np.ndarray) -> float:
    """Variance of the mean of correlated steps, from the steps; not a number of fewer than two."""
    if len(values) < 2:
        return math.nan
    return float(values.var(ddof=1)) / len(values) * inflation(autocorrelation(values))
