"""Power, and the launches that precision costs: pure functions of numbers, each with its source."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
import scipy  # its stats, which take a second to import, only where a power is asked for

from bench.study.looks import ALPHA, MAX_LAUNCHES, MIN_LAUNCHES
from bench.study.stats import Paired, half_of_t

POWER = 0.8  # share of studies that find what is there, where a number of launches is advised


def half_width(sd_log: float, n: int) -> float | None:
    """Compute the t interval's relative half-width from the sd of n log ratios; None of one."""
    return math.expm1(half_of_t(sd_log, n)) if n > 1 else None


def power_difference(sd_log: float, effect_log: float, n: int, level: float = ALPHA) -> float:
    """Compute a paired two-sided t test's power at a true log ratio (noncentral t; Cohen 1988)."""
    if sd_log == 0:
        return float(effect_log != 0)
    critical = float(scipy.stats.t.ppf(1 - level / 2, n - 1))
    nc = abs(effect_log) * math.sqrt(n) / sd_log
    return _exceeds(critical, n - 1, nc) + _exceeds(critical, n - 1, -nc)


def power_equivalence(
    sd_log: float, effect_log: float, margin: float, n: int, level: float = ALPHA
) -> float:
    """Compute the exact power of two one-sided tests (Schuirmann 1987)."""
    edge = math.log1p(margin)
    if sd_log == 0:
        return float(abs(effect_log) < edge)
    scale = math.sqrt(n) / sd_log
    return power_tost(edge * scale, effect_log * scale, n - 1, level)


def power_tost(edge: float, effect: float, df: int, level: float = ALPHA) -> float:
    """Compute P(both one-sided tests reject); `edge`, true `effect` in standard errors of the mean.

    Owen's Q (Owen 1965), as one integral over s, the sample's deviation over the true one: both
    tests reject where the mean lies further than critical * s from either edge.
    """
    critical = float(scipy.stats.t.ppf(1 - level, df))
    tails = scipy.stats.chi2.isf([1 - 1e-15, 1e-15], df)
    low, high = np.sqrt(tails / df)
    high = min(high, edge / critical)
    if high <= low:
        return 0.0
    at, weight = np.polynomial.legendre.leggauss(64)
    s = low + (high - low) * (at + 1) / 2
    density = 2 * df * s * scipy.stats.chi2.pdf(df * s**2, df)
    room = edge - critical * s
    inside = scipy.stats.norm.cdf(room - effect) - scipy.stats.norm.cdf(-room - effect)
    return float((high - low) / 2 * np.sum(weight * density * inside))


def chance(p: Paired, margin: float, n: int, level: float = ALPHA) -> float | None:
    """Estimate the chance to settle at `n` launches alone, were ratio and noise so far true."""
    if p.sd_log is None:
        return None
    effect = math.log(p.ratio)
    different = power_difference(p.sd_log, effect, n, level)
    return max(different, power_equivalence(p.sd_log, effect, margin, n, level / 2))


def launches_to_settle(p: Paired, margin: float, level: float = ALPHA) -> int | None:
    """Find the fewest launches, more than there are, at which the `chance` to settle is POWER."""
    if p.sd_log is None:
        return None
    counts = range(max(MIN_LAUNCHES, p.n + 1), MAX_LAUNCHES + 1)  # more are out of reach
    at = bisect_left(counts, True, key=lambda n: (chance(p, margin, n, level) or 0.0) >= POWER)
    return counts[at] if at < len(counts) else None


def _exceeds(critical: float, df: int, noncentrality: float) -> float:
    """Compute P(T > critical) for noncentral t; far out, where scipy overflows, take its limit."""
    if abs(noncentrality - critical) > 30:
        return float(noncentrality > critical)
    return float(scipy.stats.nct.sf(critical, df, noncentrality))
