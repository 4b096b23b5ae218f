"""Intervals and verdicts: pure functions of numbers, each naming its source.

Everything here works on the logs of positive numbers (seconds, images/s), because what is compared
are ratios; an "observation" is the mean of one block, never a step (Kalibera & Jones 2013: repeat
at the level that varies most).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import stats

from bench.study.limits import ALPHA as ALPHA
from bench.study.limits import MIN_BLOCKS as MIN_BLOCKS

_MAX_FLIPS = 20  # 2^20 sign vectors are still enumerated in well under a second

Verdict = Literal[
    "too few blocks",
    "equivalent",
    "small difference",
    "different",
    "not after Holm",  # different by itself, and not among all that the study compares
    "equivalence not after Holm",  # the same of the margin
    "inconclusive",
]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval over blocks, all in the value's own unit, none a logarithm."""

    value: float  # mean, geometric mean, ratio of such, or median
    low: float | None  # ends of the interval; None where n = 1 gives none
    high: float | None
    n: int  # blocks
    # one value per block, where they are paired or of one point
    blocks: tuple[float, ...] = field(default=(), compare=False)

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval, unless fewer than MIN_BLOCKS blocks let it span orders of magnitude."""
        if self.low is None or self.high is None or self.n < MIN_BLOCKS:
            return None
        return self.low, self.high

    def times(self, factor: float) -> Estimate:
        """The same estimate in another unit."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        blocks = tuple(b * factor for b in self.blocks)
        return Estimate(value=self.value * factor, low=low, high=high, n=self.n, blocks=blocks)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A ratio paired by block, exact checks beside the t form; None where one block gives none."""

    ratio: float  # ratio: exp of the mean log ratio
    n: int  # blocks
    ratios: tuple[float, ...] = ()  # ratios, one per block
    sd_log: float | None = None  # log: standard deviation of the log ratio between blocks
    ci95: tuple[float, float] | None = None  # ratios
    ci90: tuple[float, float] | None = None  # ratios
    t: float | None = None  # of the mean log ratio against 0
    t_p: float | None = None  # p values, two-sided, of the log ratios
    signflip_p: float | None = None
    wilcoxon_p: float | None = None

    @property
    def estimate(self) -> Estimate:
        """The ratio with its 95 % interval."""
        low, high = self.ci95 or (None, None)
        return Estimate(value=self.ratio, low=low, high=high, n=self.n, blocks=self.ratios)


def half_of_t(sd: float, n: int, level: float = 1 - ALPHA) -> float:
    """Half the width of Student's t interval of a mean of n values."""
    return float(stats.t.ppf((1 + level) / 2, n - 1)) * sd / math.sqrt(n)


def t_interval(values: Sequence[float], level: float = 1 - ALPHA) -> tuple[float, float] | None:
    """Student t interval of a mean (Student 1908; Hoefler & Belli 2015, rule 5); None of one."""
    if len(values) < 2:
        return None
    mean, half = (
        float(np.mean(values)),
        half_of_t(float(np.std(values, ddof=1)), len(values), level),
    )
    return mean - half, mean + half


def geometric_mean(values: Sequence[float]) -> Estimate:
    """Geometric mean, t interval on logs: covers 94-96 % with few blocks, a bootstrap 82-88 %."""
    logs = [math.log(v) for v in values]
    low, high = _exp(t_interval(logs)) or (None, None)
    mean = math.exp(float(np.mean(logs)))
    return Estimate(value=mean, low=low, high=high, n=len(values), blocks=tuple(values))


def arithmetic_mean(values: Sequence[float]) -> Estimate:
    """Mean with its t interval, of what may be zero or negative, such as differences of times."""
    low, high = t_interval(values) or (None, None)
    mean = float(np.mean(values))
    return Estimate(value=mean, low=low, high=high, n=len(values), blocks=tuple(values))


def pooled_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Standard deviation of values around their own group's mean; None without a group of two."""
    several = [np.asarray(group, float) for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in several)
    return math.sqrt(squares / freedom) if freedom else None


def paired_ratio(*, numerator: Sequence[float], denominator: Sequence[float]) -> Paired:
    """Ratio of values that share a block, by position: exp of the mean log ratio, t intervals.

    Hoefler & Belli 2015, rule 7; the order inside a block is random (Abedi & Brecht 2017).
    """
    d = np.log(np.asarray(numerator, float)) - np.log(np.asarray(denominator, float))
    n, mean, logs = len(d), float(np.mean(d)), d.tolist()
    ratio, ratios = math.exp(mean), tuple(np.exp(d).tolist())
    if n < 2:
        return Paired(ratio=ratio, n=n, ratios=ratios)
    sd = float(np.std(d, ddof=1))
    t = mean / (sd / math.sqrt(n)) if sd > 0 else math.copysign(math.inf, mean) if mean else 0.0
    return Paired(
        ratio=ratio,
        n=n,
        ratios=ratios,
        sd_log=sd,
        ci95=_exp(t_interval(logs)),
        ci90=_exp(t_interval(logs, 1 - 2 * ALPHA)),
        t=t,
        t_p=float(2 * stats.t.sf(abs(t), n - 1)),
        signflip_p=signflip_p(logs),
        wilcoxon_p=wilcoxon_p(logs),
    )


def _exp(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if ends is None else (math.exp(ends[0]), math.exp(ends[1]))


def signflip_p(differences: Sequence[float]) -> float | None:
    """Exact two-sided sign-flip p, all 2^n signs (Fisher 1935; Pitman 1937); None above n = 20."""
    if len(differences) > _MAX_FLIPS:
        return None
    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + d, sums - d])
    observed = abs(math.fsum(differences))
    return float(np.mean(np.abs(sums) >= observed - 1e-12 * max(observed, 1e-300) - 1e-15))


def wilcoxon_p(differences: Sequence[float]) -> float:
    """Two-sided Wilcoxon signed-rank p (Wilcoxon 1945); 1 where every difference is zero."""
    return float(stats.wilcoxon(differences).pvalue) if np.any(differences) else 1.0


def welch_ratio(*, numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Ratio without shared blocks: Welch's interval on logs (1947); `n` is the smaller group's."""
    logs = [np.log(np.asarray(x, float)) for x in (denominator, numerator)]
    mean = float(logs[1].mean() - logs[0].mean())
    n = min(len(x) for x in logs)
    if n < 2:
        return Estimate(value=math.exp(mean), low=None, high=None, n=n)
    v = [float(x.var(ddof=1)) / len(x) for x in logs]
    half = 0.0
    if sum(v) > 0:
        df = sum(v) ** 2 / sum(vi**2 / (len(x) - 1) for vi, x in zip(v, logs, strict=True))
        half = float(stats.t.ppf(1 - ALPHA / 2, df)) * math.sqrt(sum(v))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Estimate(value=math.exp(mean), low=low, high=high, n=n)


def tost_p(paired: Paired, margin: float) -> float | None:
    """p of two one-sided tests that the ratio lies outside the margin (Schuirmann 1987)."""
    if paired.sd_log is None:
        return None
    to_edge = math.log1p(margin) - abs(math.log(paired.ratio))  # the nearer one's p is the larger
    if paired.sd_log == 0:
        return float(to_edge < 0)
    return float(stats.t.sf(to_edge * math.sqrt(paired.n) / paired.sd_log, paired.n - 1))


def decide(
    paired: Paired,
    margin: float,
    *,
    level: float = ALPHA,
    holm_p: float | None = None,
    holm_tost_p: float | None = None,
) -> Verdict:
    """What may be said of a pair, with the margin fixed beforehand.

    `level`: of this look at the study (`looks.nominal_level`). The others are t_p and tost_p over
    all looks and comparisons; None where the pair stands alone. "p > 0.05" is never "no
    difference": equality is claimed only where the interval of 1 - 2 level lies inside the margin.
    """
    tost = tost_p(paired, margin)
    if paired.t_p is None or tost is None or paired.n < MIN_BLOCKS:
        return "too few blocks"
    differs, equal = paired.t_p < level, tost <= level  # each by itself
    if equal and (holm_tost_p is None or holm_tost_p <= ALPHA):
        holds = differs and (holm_p is None or holm_p <= ALPHA)
        return "small difference" if holds else "equivalent"
    if differs and (holm_p is None or holm_p <= ALPHA):
        return "different"
    return (
        "equivalence not after Holm" if equal else "not after Holm" if differs else "inconclusive"
    )


def signflip_disagrees(paired: Paired, level: float = ALPHA) -> bool:
    """Whether the exact test does not call the difference that t calls, or calls one t does not."""
    if paired.t_p is None or paired.signflip_p is None:
        return False
    return (paired.t_p < level) != (paired.signflip_p <= level)


def holm(p_values: Sequence[float], weights: Sequence[int] | None = None) -> list[float]:
    """Holm's step-down adjustment of p values, in the order given (Holm 1979).

    `weights`: shares of the error that each may make at first; equal without any.
    """
    shares = weights or [1] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i] / shares[i])
    adjusted, running, left = [0.0] * len(p_values), 0.0, sum(shares)
    for i in order:
        running = max(running, left * p_values[i] / shares[i])
        adjusted[i] = min(1.0, running)
        left -= shares[i]
    return adjusted


def median_interval_ranks(n: int) -> tuple[int, int] | None:
    """1-based ranks around the median, by binomial tails (Le Boudec 2010, A.1); None for n <= 5."""
    low = int(np.sum(stats.binom.cdf(np.arange(n // 2), n, 0.5) <= ALPHA / 2))
    return (low, n + 1 - low) if low >= 1 else None


def median_estimate(values: Sequence[float]) -> Estimate:
    """Median with its exact rank interval, which does not exist for n <= 5."""
    x, ranks = sorted(values), median_interval_ranks(len(values))
    low, high = (x[ranks[0] - 1], x[ranks[1] - 1]) if ranks else (None, None)
    return Estimate(value=float(np.median(x)), low=low, high=high, n=len(x))


def percentiles(
    values: Sequence[float] | np.ndarray, percents: Sequence[int]
) -> list[float | None]:
    """Each percentile; None where less than one value is expected beyond it, n (1 - q) < 1.

    The largest of n is the quantile n / (n + 1) on average (David & Nagaraja 2003, order statistics
    of a uniform sample): of fewer values a percentile would be the maximum under another name.
    """
    found = np.percentile(values, percents)  # at once: one by one takes as long each
    enough = [len(values) * (100 - percent) >= 100 for percent in percents]
    return [float(value) if is_so else None for value, is_so in zip(found, enough, strict=True)]
