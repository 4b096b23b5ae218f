"""Intervals, decisions and power: pure functions of numbers, each naming its source.

Everything here works on the logs of positive numbers (seconds, images/s), because what is compared
are ratios; an "observation" is the mean of one launch, never a step (Kalibera & Jones 2013: repeat
at the level that varies most).
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
    """A value with its 95 % interval over launches, in the value's own unit, no logarithm."""

    value: float  # mean, geometric mean, ratio of such, or median
    low: float | None  # ends of the interval; None where n = 1 gives none
    high: float | None
    n: int  # launches
    # one value per launch, where they are paired or of one point
    launches: tuple[float, ...] = field(default=(), compare=False)

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval, unless fewer than MIN_LAUNCHES launches let it span orders of magnitude."""
        if self.low is None or self.high is None or self.n < MIN_LAUNCHES:
            return None
        return self.low, self.high

    def times(self, factor: float) -> Estimate:
        """Convert the estimate to another unit."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        launches = tuple(b * factor for b in self.launches)
        return Estimate(value=self.value * factor, low=low, high=high, n=self.n, launches=launches)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A ratio paired by launch, all of it over logs; None where one launch gives none."""

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
        """Return Student's t interval of the ratio; it misses the truth in `level` of studies."""
        if self.error_log is None:
            return None
        half = quantile(level, self.freedom) * self.error_log
        return self.ratio * math.exp(-half), self.ratio * math.exp(half)

    def estimate_at(self, level: float) -> Estimate:
        """Return the ratio with its interval at `level`."""
        low, high = self.interval(level) or (None, None)
        return Estimate(value=self.ratio, low=low, high=high, n=self.n, launches=self.ratios)

    @property
    def estimate(self) -> Estimate:
        """The ratio with its 95 % interval."""
        return self.estimate_at(ALPHA)

    @property
    def t(self) -> float | None:
        """Of the mean log ratio against 0."""
        if self.error_log is None:
            return None
        mean = math.log(self.ratio)
        if self.error_log > 0:
            return mean / self.error_log
        return math.copysign(math.inf, mean) if mean else 0.0

    @property
    def t_p(self) -> float | None:
        """Two-sided p of that."""
        return None if self.t is None else float(2 * special.stdtr(self.freedom, -abs(self.t)))

    @property
    def signflip_p(self) -> float | None:
        """Of the exact test; None below EXACT launches, of which it could hardly be small."""
        return None if self.n < EXACT else signflip_p(np.log(self.ratios).tolist())


@cache
def quantile(level: float, freedom: float) -> float:
    """Return the quantile of Student's t beyond which, on both sides together, `level` lies."""
    return float(special.stdtrit(freedom, 1 - level / 2))


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Estimate a mean's t interval (Student 1908; Hoefler & Belli 2015, rule 5); None of one."""
    if len(values) < 2:
        return None
    n, mean, sd = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    half = quantile(ALPHA, n - 1) * sd / math.sqrt(n)
    return mean - half, mean + half


def geometric_mean(values: Sequence[float]) -> Estimate:
    """Take a geometric mean, t on logs: of few launches it covers 94-96 %, a bootstrap 82-88 %."""
    logs = [math.log(v) for v in values]
    ends = t_interval(logs)
    low, high = (math.exp(ends[0]), math.exp(ends[1])) if ends else (None, None)
    mean = math.exp(float(np.mean(logs)))
    return Estimate(value=mean, low=low, high=high, n=len(values), launches=tuple(values))


def arithmetic_mean(values: Sequence[float]) -> Estimate:
    """Estimate a mean with its t interval, of values that may be <= 0, such as time differences."""
    low, high = t_interval(values) or (None, None)
    mean = float(np.mean(values))
    return Estimate(value=mean, low=low, high=high, n=len(values), launches=tuple(values))


def pooled_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Pool the standard deviation around each group's mean; None without a group of two values."""
    several = [np.asarray(group, float) for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in several)
    return math.sqrt(squares / freedom) if freedom else None


def paired_ratio(
    *, numerator: Sequence[float], denominator: Sequence[float], first: Sequence[bool] = ()
) -> Paired:
    """Estimate a ratio of values that share a launch, by position: exp of the mean log ratio, by t.

    Hoefler & Belli 2015, rule 7. `first`: per launch whether that side ran first that a ratio above
    1 calls faster. Where each order is there at least twice, mean and role are fitted together: the
    design is a crossover in two orders (Hills & Armitage 1979), so what its swap balances belongs
    in the model, not in the noise. That is so of separate launches as of turns, which both are
    swapped, and costs one degree of freedom; a rule that looked at the data first would err more.
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
    """Estimate the ratio by Student's t on means of sessions (each launch's own), from three on.

    A session shares more than its launches tell: with the launch as the unit, intervals held the
    long-run ratio in 61 % of cases where sessions had an sd of 2 %.
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
    """Compute exact two-sided sign-flip p, 2^n signs (Fisher 1935; Pitman 1937); None if n > 20."""
    if len(differences) > _MAX_FLIPS:
        return None
    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + d, sums - d])
    observed = abs(math.fsum(differences))
    return float(np.mean(np.abs(sums) >= observed - 1e-12 * max(observed, 1e-300) - 1e-15))


def welch_ratio(*, numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Estimate a ratio without shared launches, by Welch on logs (1947); `n`: the smaller one."""
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
    """Decide what an interval of a ratio says, with the margin fixed beforehand.

    Inside the margin the two are equal, whether or not it holds 1: the study named beforehand what
    counts as no difference, and who read "faster by 0.4 %" would act on just that. Two one-sided
    tests reject exactly then (Schuirmann 1987). An interval that holds the truth errs in neither.
    """
    low, high = interval
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return "equal"
    return "faster" if low > 1 or high < 1 else "not settled"


def median_estimate(values: Sequence[float]) -> Estimate:
    """Estimate the median with its exact rank interval (Le Boudec 2010, A.1), which needs n > 5."""
    x, n = sorted(values), len(values)
    rank = int(np.sum(special.bdtr(np.arange(n // 2), n, 0.5) <= ALPHA / 2))
    low, high = (x[rank - 1], x[n - rank]) if rank else (None, None)
    return Estimate(value=float(np.median(x)), low=low, high=high, n=n)


def percentiles(
    values: Sequence[float] | np.ndarray, percents: Sequence[int]
) -> list[float | None]:
    """Compute each percentile; None where less than one value is expected beyond it, n (1 - q) < 1.

    The largest of n is the quantile n / (n + 1) on average (David & Nagaraja 2003, order statistics
    of a uniform sample): of fewer values a percentile would be the maximum under another name.
    """
    at = np.percentile(values, percents)  # at once: one by one takes as long each
    enough = [len(values) * (100 - percent) >= 100 for percent in percents]
    return [float(value) if is_so else None for value, is_so in zip(at, enough, strict=True)]


@cache
def nominal_level(looks: tuple[int, ...], overall: float = ALPHA) -> float:
    """Estimate the p below which a t test at any of `looks` (launches, rising) finds a difference.

    The same at each look (Pocock 1977), for Student's t rather than a known deviation: of studies
    without a difference, `overall` then call one at some look. An interval of 1 - level holds the
    truth at all looks of 1 - overall of studies. Of an effect at the margin, one side alone errs:
    half as often.
    """
    if len(looks) < 2:
        return overall
    return float(np.quantile(_smallest_p(looks), overall))


@cache
def _smallest_p(looks: tuple[int, ...]) -> np.ndarray:
    """Draw the smallest two-sided p of all looks, [studies], for normal log ratios of mean zero.

    Of m such ratios the sum z and the squares around its mean are independent: normal, and
    chi-squared with m - 1 degrees of freedom. So each look takes two draws, whatever its launches.
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
    """Compute the exact power of two one-sided tests (Schuirmann 1987).

    Owen's Q (Owen 1965), as one integral over s, the sample's deviation over the true one: both
    tests reject where the mean lies further than critical * s from either edge.
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
