"""Intervals, decisions and power, as pure functions of numbers, with the sources of formulas.

Ratios of positive numbers (seconds, images/s) are estimated on their logarithms. An
observation is a launch, a run or a training, never a step (Kalibera & Jones 2013: repeat at the
level that varies most).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np
import scipy  # its stats, which take a second to import, only where a power is asked for
from scipy import special

from bench.study.looks import ALPHA as ALPHA
from bench.study.looks import MAX_LAUNCHES
from bench.study.looks import MIN_LAUNCHES as MIN_LAUNCHES

SESSIONS = 3  # from which on their means carry the interval
EXACT = 8  # launches from which the exact test is printed beside the interval
POWER = 0.8  # share of studies that find what is there, where a number of launches is advised
_STUDIES = 2**18  # simulated: a level of 0.02 is then good to 0.0002 (one standard error)
_SEED = 20250613
_MAX_FLIPS = 20  # 2^20 sign vectors are still enumerated in well under a second

Decision = Literal["faster", "equal", "not settled"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with an interval, by default of 95 %; both in the value's own unit, not in logs."""

    value: float  # mean, geometric mean, ratio of such, or median
    low: float | None  # ends of the interval; None where n = 1 gives none
    high: float | None
    n: int  # launches
    # one value per launch, where they are paired or of one point
    launches: tuple[float, ...] = field(default=(), compare=False)

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval; None below MIN_LAUNCHES, where intervals may span orders of magnitude."""
        if self.low is None or self.high is None or self.n < MIN_LAUNCHES:
            return None
        return self.low, self.high

    def times(self, factor: float) -> Estimate:
        """Return the estimate multiplied by a factor, as to change its unit."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        launches = tuple(b * factor for b in self.launches)
        return Estimate(value=self.value * factor, low=low, high=high, n=self.n, launches=launches)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A ratio paired by launch, computed on logarithms; from one launch it has no interval."""

    ratio: float  # exp of the mean log ratio
    n: int  # launches
    ratios: tuple[float, ...] = ()  # one per launch
    sd_log: float | None = (
        None  # of the log ratio between launches, what who was first made left out
    )
    error_log: float | None = None  # standard error of the mean log ratio
    freedom: int = 0  # degrees of freedom of that error
    role: Estimate | None = None  # by which factor the first was faster, of both orders

    def interval(self, level: float = ALPHA) -> tuple[float, float] | None:
        """Return the ratio's t interval at error rate `level` (0.05: 95 %); None for one launch."""
        if self.error_log is None:
            return None
        half = quantile(level, self.freedom) * self.error_log
        return self.ratio * math.exp(-half), self.ratio * math.exp(half)

    def estimate_at(self, level: float) -> Estimate:
        """Return the ratio with its interval at error rate `level`; 0.05 gives 95 %."""
        low, high = self.interval(level) or (None, None)
        return Estimate(value=self.ratio, low=low, high=high, n=self.n, launches=self.ratios)

    @property
    def estimate(self) -> Estimate:
        """The ratio with its 95 % interval."""
        return self.estimate_at(ALPHA)

    @property
    def t(self) -> float | None:
        """Student's t of the mean log ratio against 0; None for one launch."""
        if self.error_log is None:
            return None
        mean = math.log(self.ratio)
        if self.error_log > 0:
            return mean / self.error_log
        return math.copysign(math.inf, mean) if mean else 0.0

    @property
    def t_p(self) -> float | None:
        """Two-sided p of `t`; None for one launch."""
        return None if self.t is None else float(2 * special.stdtr(self.freedom, -abs(self.t)))

    @property
    def signflip_p(self) -> float | None:
        """p of the exact sign-flip test; None below EXACT launches and above 20 launches."""
        return None if self.n < EXACT else signflip_p(np.log(self.ratios).tolist())


@cache
def quantile(level: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t: abs(T) exceeds it with probability `level`."""
    return float(special.stdtrit(freedom, 1 - level / 2))


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Compute a mean's 95 % t interval (Student 1908; Hoefler & Belli 2015); None if n < 2."""
    if len(values) < 2:
        return None
    n, mean, sd = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    half = quantile(ALPHA, n - 1) * sd / math.sqrt(n)
    return mean - half, mean + half


def geometric_mean(values: Sequence[float]) -> Estimate:
    """Estimate a geometric mean of values above 0, with a 95 % t interval on logs if n > 1."""
    logs = [math.log(v) for v in values]
    ends = t_interval(logs)
    low, high = (math.exp(ends[0]), math.exp(ends[1])) if ends else (None, None)
    mean = math.exp(float(np.mean(logs)))
    return Estimate(value=mean, low=low, high=high, n=len(values), launches=tuple(values))


def arithmetic_mean(values: Sequence[float]) -> Estimate:
    """Estimate a mean, with a 95 % t interval if n > 1; values may be <= 0, as time differences."""
    low, high = t_interval(values) or (None, None)
    mean = float(np.mean(values))
    return Estimate(value=mean, low=low, high=high, n=len(values), launches=tuple(values))


def pooled_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Pool the standard deviations around group means; None if no group has two values."""
    several = [np.asarray(group, float) for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in several)
    return math.sqrt(squares / freedom) if freedom else None


def paired_ratio(
    *, numerator: Sequence[float], denominator: Sequence[float], first: Sequence[bool] = ()
) -> Paired:
    """Estimate a ratio paired by launch, by t on logs (Hoefler & Belli 2015, rule 7).

    Values are paired by position. `first` says for each launch whether the denominator's side ran
    first. If each order occurs at least twice, the mean and the effect of order are fitted
    together, at the cost of one degree of freedom (Hills & Armitage 1979: crossover designs).
    """
    d = np.log(np.asarray(numerator, float)) - np.log(np.asarray(denominator, float))
    ratios, n = tuple(np.exp(d).tolist()), len(d)
    was_first = np.asarray(first, bool)
    if n < 2:
        return Paired(ratio=math.exp(float(d.mean())), n=n, ratios=ratios)
    if not 2 <= was_first.sum() <= n - 2:
        mean, sd = float(d.mean()), float(d.std(ddof=1))
        plain = Paired(ratio=math.exp(mean), n=n, ratios=ratios, sd_log=sd)
        return replace(plain, error_log=sd / math.sqrt(n), freedom=n - 1)
    groups = d[was_first], d[~was_first]
    means = [float(group.mean()) for group in groups]
    sd = pooled_sd([group.tolist() for group in groups]) or 0.0
    error = sd * math.sqrt(sum(1 / len(group) for group in groups)) / 2
    both = Paired(ratio=math.exp(sum(means) / 2), n=n, ratios=ratios, sd_log=sd)
    both = replace(both, error_log=error, freedom=n - 2)
    role = replace(both, ratio=math.exp((means[0] - means[1]) / 2)).estimate
    return replace(both, role=replace(role, launches=()))


def over_sessions(paired: Paired, sessions: Sequence[str]) -> Paired:
    """Return the ratio by Student's t on session means, or unchanged below three sessions.

    `sessions` names each launch's session. Launches of a session deviate together, so intervals
    over launches are too narrow: at an sd of 2 % between sessions, 61 % of them, not 95 %, held
    the long-run ratio.
    """
    logs: dict[str, list[float]] = {}
    for session, ratio in zip(sessions, paired.ratios, strict=True):
        logs.setdefault(session, []).append(math.log(ratio))
    if len(logs) < SESSIONS:
        return paired
    means = [float(np.mean(of_session)) for of_session in logs.values()]
    error = float(np.std(means, ddof=1)) / math.sqrt(len(means))
    ratio = math.exp(float(np.mean(means)))
    return replace(paired, ratio=ratio, error_log=error, freedom=len(means) - 1)


def signflip_p(differences: Sequence[float]) -> float | None:
    """Compute the exact two-sided sign-flip p (Fisher 1935; Pitman 1937); None if n > 20."""
    if len(differences) > _MAX_FLIPS:
        return None
    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + d, sums - d])
    observed = abs(math.fsum(differences))
    return float(np.mean(np.abs(sums) >= observed - 1e-12 * max(observed, 1e-300) - 1e-15))


def welch_ratio(*, numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Estimate a ratio of unpaired values by Welch's t on logs (1947); `n` is the smaller size."""
    logs = [np.log(np.asarray(x, float)) for x in (denominator, numerator)]
    mean = float(logs[1].mean() - logs[0].mean())
    n = min(len(x) for x in logs)
    if n < 2:
        return Estimate(value=math.exp(mean), low=None, high=None, n=n)
    # not scipy's, which warns where the values of one group are nearly equal
    v = [float(x.var(ddof=1)) / len(x) for x in logs]
    half = 0.0
    if sum(v) > 0:
        df = sum(v) ** 2 / sum(vi**2 / (len(x) - 1) for vi, x in zip(v, logs, strict=True))
        half = quantile(ALPHA, df) * math.sqrt(sum(v))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Estimate(value=math.exp(mean), low=low, high=high, n=n)


def decide(interval: tuple[float, float], margin: float) -> Decision:
    """Decide what an interval of a ratio says, with a relative margin such as 0.02.

    'equal': it is inside 1 / (1 + margin) to 1 + margin, with or without 1, as by two one-sided
    tests (Schuirmann 1987). 'faster', for either side: any other interval without 1. 'not settled':
    all others. If the interval holds the true ratio, the decision is not wrong.
    """
    low, high = interval
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return "equal"
    return "faster" if low > 1 or high < 1 else "not settled"


def median_estimate(values: Sequence[float]) -> Estimate:
    """Estimate the median; its exact 95 % rank interval (Le Boudec 2010, A.1) is None if n < 6."""
    x, n = sorted(values), len(values)
    rank = int(np.sum(special.bdtr(np.arange(n // 2), n, 0.5) <= ALPHA / 2))
    low, high = (x[rank - 1], x[n - rank]) if rank else (None, None)
    return Estimate(value=float(np.median(x)), low=low, high=high, n=n)


def percentiles(
    values: Sequence[float] | np.ndarray, percents: Sequence[int]
) -> list[float | None]:
    """Compute each percentile; None if less than one value is expected above it (p99 of 99).

    Such a one would be near the maximum of the n values, on average the quantile n / (n + 1)
    (David & Nagaraja 2003, order statistics of a uniform sample).
    """
    at = np.percentile(values, percents)  # at once: one by one takes as long each
    enough = [len(values) * (100 - percent) >= 100 for percent in percents]
    return [float(value) if is_so else None for value, is_so in zip(at, enough, strict=True)]


@cache
def nominal_level(looks: tuple[int, ...], overall: float = ALPHA) -> float:
    """Estimate the error rate per look that makes the rate over all looks of a study `overall`.

    `looks` are the rising numbers of launches at which the study decides. All have the same rate
    (Pocock 1977, here for Student's t). Intervals at this rate hold the true ratio at all looks
    with probability 1 - `overall`. If the true ratio is at the margin's edge, a false 'equal' has
    probability `overall` / 2.
    """
    if len(looks) < 2:
        return overall
    return float(np.quantile(_smallest_p(looks), overall))


@cache
def _smallest_p(looks: tuple[int, ...]) -> np.ndarray:
    """Simulate studies with log ratios from N(0, 1); return each one's smallest p over all looks.

    A look adds m log ratios, for which two independent draws suffice: their sum is normal, and the
    sum of their squared deviations is chi-squared with m - 1 degrees of freedom.
    """
    random = np.random.Generator(np.random.Philox(_SEED))
    sums, squares, p = np.zeros(_STUDIES), np.zeros(_STUDIES), np.ones(_STUDIES)
    for before, n in pairwise((0, *looks)):
        m = n - before
        added = np.sqrt(m) * random.standard_normal(_STUDIES)
        sums += added
        squares += added**2 / m + (random.chisquare(m - 1, _STUDIES) if m > 1 else 0.0)
        variance = (squares - sums**2 / n) / (n - 1)
        t = sums / np.sqrt(n * variance)
        p = np.minimum(p, 2 * special.stdtr(n - 1, -np.abs(t)))
    return p


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
    """Compute the exact power of two one-sided tests, each at `level` (Schuirmann 1987).

    The power is Owen's Q (Owen 1965), an integral over s, the ratio of the sample's standard
    deviation to the true one.
    """
    edge = math.log1p(margin)
    if sd_log == 0:
        return float(abs(effect_log) < edge)
    errors = math.sqrt(n) / sd_log
    edge, effect = edge * errors, effect_log * errors  # in standard errors of the mean
    df = n - 1
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
    """Estimate the chance that `n` launches like `p`'s settle the verdict; None if `p.n` is 1."""
    if p.sd_log is None:
        return None
    effect = math.log(p.ratio)
    different = power_difference(p.sd_log, effect, n, level)
    return max(different, power_equivalence(p.sd_log, effect, margin, n, level / 2))


def launches_to_settle(p: Paired, margin: float, level: float = ALPHA) -> int | None:
    """Find the fewest launches above `p.n` with a `chance` of POWER; None beyond MAX_LAUNCHES."""
    if p.sd_log is None:
        return None
    counts = range(max(MIN_LAUNCHES, p.n + 1), MAX_LAUNCHES + 1)  # more are out of reach
    at = bisect_left(counts, True, key=lambda n: (chance(p, margin, n, level) or 0.0) >= POWER)
    return counts[at] if at < len(counts) else None


def _exceeds(critical: float, df: int, noncentrality: float) -> float:
    """Compute P(T > critical) of a noncentral t; far out, where scipy overflows, use 0 or 1."""
    if abs(noncentrality - critical) > 30:
        return float(noncentrality > critical)
    return float(scipy.stats.nct.sf(critical, df, noncentrality))
