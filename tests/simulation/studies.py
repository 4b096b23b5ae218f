"""Simulated studies of known truth, through the statistics of this project: what they promise.

Noise is that of committed logs. Every study is log ratios, one per launch, of two arms that share
the launch's own speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats as tests

from bench.study import stats
from bench.study.looks import nominal_level, schedule
from tests.simulation.noise import Array, Measured, noises, normal

Flags = NDArray[np.bool_]

STUDIES = 20_000  # of each kind; a share of 5 % is then good to 0.15 % (one standard error)
SEED = 20261122
LAUNCHES = (6, 8, 12)
LOOKS = schedule(6, 20)
OF_TURNS = 0.019  # paired sd of launches in which both sides took turns
SEQUENTIAL = (0.0, 0.5, 1.0, 2.5)  # true effects, in margins of the studies that stop by themselves
MARGIN = 0.02  # theirs


@dataclass(frozen=True)
class Outcomes:
    """Of many studies what `stats.paired_ratio` and `stats.decide` say of each."""

    mean: Array  # log ratio
    error: Array  # its standard error
    freedom: int

    def half(self, level: float = stats.ALPHA) -> Array:
        """Compute half the width of the t interval that misses the truth in `level` of studies."""
        return float(tests.t.ppf(1 - level / 2, self.freedom)) * self.error

    def differ(self, level: float = stats.ALPHA) -> Flags:
        """Check whether the interval excludes a ratio of 1."""
        return np.abs(self.mean) > self.half(level)

    def equal(self, margin: float, level: float = stats.ALPHA) -> Flags:
        """Check whether the interval lies inside the margin."""
        return np.abs(self.mean) + self.half(level) <= math.log1p(margin)


def outcomes(d: Array) -> Outcomes:
    """Summarise log ratios [studies, launches]."""
    n = d.shape[1]
    return Outcomes(d.mean(axis=1), d.std(axis=1, ddof=1) / math.sqrt(n), n - 1)


def swapped(d: Array) -> Outcomes:
    """Summarise log ratios of an even number of launches, role fitted: who is first alternates."""
    n = d.shape[1]
    squares = sum(own.var(axis=1) * n / 2 for own in (d[:, ::2], d[:, 1::2]))
    return Outcomes(d.mean(axis=1), np.sqrt(squares / (n - 2) / n), n - 2)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often the 95 % interval holds the truth; a share of 1 is 100 %, as everywhere here."""

    noise: str
    launches: int
    coverage: float


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Studies of LOOKS that stop where they are settled, of a true effect."""

    sd: float  # paired
    effect: float
    wrong: float  # share that ends in a wrong verdict
    launches: float  # on average
    settled: tuple[float, ...]  # share that has ended by each look


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What the statistics are to keep, and whether they did."""

    what: str
    found: str
    met: bool


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """All tables of one simulation."""

    seed: int
    studies: int  # of each row
    measured: Measured
    coverage: list[Coverage]
    looks: list[Stopped]
    bars: list[Bar]


def simulate(m: Measured, studies: int = STUDIES, seed: int = SEED) -> Simulation:
    """Simulate every table; each row draws studies of its own, which the seed fixes."""
    random = np.random.default_rng(seed)
    shape = studies, max(LAUNCHES)
    drawn = {name: draw(random, shape) for name, draw in noises(m).items()}
    coverage = [
        Coverage(noise=name, launches=n, coverage=float(np.mean(~outcomes(d[:, :n]).differ())))
        for (name, d), n in product(drawn.items(), LAUNCHES)
    ]
    looks = list(_looks(m, random, studies))
    bars = list(_bars(studies, list(drawn)[:2], coverage, looks))
    tables: dict[str, Any] = {"coverage": coverage, "looks": looks, "bars": bars}
    return Simulation(seed=seed, studies=studies, measured=m, **tables)


def _looks(m: Measured, random: Generator, studies: int) -> Iterator[Stopped]:
    level, last = nominal_level(LOOKS), max(LOOKS)
    for sd, share in product((OF_TURNS, m.paired_sd), SEQUENTIAL):
        d = normal(m, random, (studies, last), sd) + share * math.log1p(MARGIN)
        wrong, ended = np.zeros(studies, bool), np.full(studies, last + 1)
        for n in LOOKS:
            o = swapped(d[:, :n])
            equal, differ = o.equal(MARGIN, level), o.differ(level)
            false = np.where(equal, share >= 1, differ & ((o.mean < 0) | (share == 0)))
            now = (ended > n) & (equal | differ)
            wrong |= now & false
            ended[now] = n
        yield Stopped(
            sd=sd,
            effect=(1 + MARGIN) ** share - 1,
            wrong=float(np.mean(wrong)),
            launches=float(np.mean(np.minimum(ended, last))),
            settled=tuple(float(np.mean(ended <= n)) for n in LOOKS),
        )


def _bars(
    studies: int,
    noises: Sequence[str],
    coverage: Sequence[Coverage],
    looks: Sequence[Stopped],
) -> Iterator[Bar]:
    covered = [c.coverage for c in coverage if c.noise in noises]
    yield _bar("95 % intervals cover 93 to 97 %, noise as measured", covered, 0.93, 0.97)
    most = stats.ALPHA + 3 * math.sqrt(stats.ALPHA * (1 - stats.ALPHA) / studies)
    what = f"wrong verdicts of studies that stop when settled: at most {100 * most:.2f} %"
    yield _bar(what, [x.wrong for x in looks], 0, most)


def _bar(what: str, values: Sequence[float], least: float, most: float) -> Bar:
    ends = dict.fromkeys(f"{100 * v:.2f}" for v in (min(values), max(values)))
    return Bar(
        what=what,
        found=f"{' to '.join(ends)} %",
        met=least <= min(values) and max(values) <= most,
    )
