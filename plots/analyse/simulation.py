"""Simulated studies of known truth, through the statistics of this project: what they promise.

Noise is that of committed logs. Every study is log ratios, one per block, of two arms that share
the block's own speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats as tests

from bench.study import power, stats
from bench.study.looks import nominal_level
from plots.analyse.noise import Array, Measured, noises, normal

Flags = NDArray[np.bool_]

STUDIES = 20_000  # of each kind; a share of 5 % is then good to 0.15 % (one standard error)
SEED = 20261122
BLOCKS = (6, 8, 12)
LOOKS = ((6,), (6, 8), (6, 8, 12))
EFFECTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15)  # of the candidate, 0.02 is 2 %
MARGINS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.15)
WITHIN = 0.3  # a half-width is as promised if it is within this share of it
_MOST_BLOCKS = 60  # that are looked at for that


@dataclass(frozen=True)
class Outcomes:
    """Of many studies what `stats.paired_ratio` and `stats.decide` say of each."""

    mean: Array  # log ratio
    error: Array  # its standard error
    blocks: int

    def half(self, level: float = stats.ALPHA) -> Array:
        """Half the width of the t interval that misses the truth in `level` of studies."""
        return float(tests.t.ppf(1 - level / 2, self.blocks - 1)) * self.error

    def differ(self, level: float = stats.ALPHA) -> Flags:
        """Whether a difference is called: 'different' or 'small difference'."""
        return np.abs(self.mean) > self.half(level)

    def equivalent(self, margin: float) -> Flags:
        """Whether equivalence is called: 'equivalent' or 'small difference'."""
        return np.abs(self.mean) + self.half(2 * stats.ALPHA) <= math.log1p(margin)


def outcomes(d: Array) -> Outcomes:
    """Of log ratios [studies, blocks]."""
    n = d.shape[1]
    return Outcomes(d.mean(axis=1), d.std(axis=1, ddof=1) / math.sqrt(n), n)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often the 95 % interval holds the truth; a share of 1 is 100 %, as everywhere here."""

    noise: str
    blocks: int
    coverage: float


@dataclass(frozen=True, kw_only=True)
class Looked:
    """How often equal arms are called different at one look or another."""

    noise: str
    looks: tuple[int, ...]
    level: float  # of each look
    corrected: bool
    called: float


@dataclass(frozen=True, kw_only=True)
class Power:
    """How often a true effect is called different, or equivalent within a margin."""

    verdict: str
    sd: float  # paired
    blocks: int
    effect: float
    margin: float | None  # of equivalence
    simulated: float
    theory: float


@dataclass(frozen=True, kw_only=True)
class HalfWidth:
    """How near a study's half-width comes to that promised from the true sd."""

    blocks: int
    promised: float
    tenth: float  # of the realised over the promised: 10 % of studies have less
    median: float
    ninetieth: float
    as_promised: float  # share within WITHIN of the promise
    theory: float


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
    looks: list[Looked]
    power: list[Power]
    half_width: list[HalfWidth]
    enough_blocks: int  # fewest whose half-width is as promised in 80 % of studies
    bars: list[Bar]


def simulate(m: Measured, studies: int = STUDIES, seed: int = SEED) -> Simulation:
    """Every table; each row draws studies of its own, which the seed fixes."""
    random = np.random.default_rng(seed)
    shape = studies, max(BLOCKS)
    drawn = {name: draw(random, shape) for name, draw in noises(m).items()}
    coverage = [
        Coverage(noise=name, blocks=n, coverage=float(np.mean(~outcomes(d[:, :n]).differ())))
        for (name, d), n in product(drawn.items(), BLOCKS)
    ]
    looks = [row for name in list(drawn)[:2] for row in _looks(name, drawn[name])]
    power = list(_power(m, random, studies))
    half_width = [_half_width(m.paired_sd, drawn["normal, as measured"][:, :n]) for n in BLOCKS]
    enough = next(n for n in range(2, _MOST_BLOCKS) if _share_as_promised(n) >= 0.8)
    bars = list(_bars(studies, list(drawn)[:2], coverage, looks, power, half_width))
    return Simulation(
        seed=seed,
        studies=studies,
        measured=m,
        coverage=coverage,
        looks=looks,
        power=power,
        half_width=half_width,
        enough_blocks=enough,
        bars=bars,
    )


def _looks(noise: str, d: Array) -> Iterator[Looked]:
    for looks in LOOKS:
        for corrected in (False, True) if len(looks) > 1 else (False,):
            level = nominal_level(looks) if corrected else stats.ALPHA
            called = np.any([outcomes(d[:, :n]).differ(level) for n in looks], axis=0)
            yield Looked(
                noise=noise,
                looks=looks,
                level=level,
                corrected=corrected,
                called=float(np.mean(called)),
            )


def _power(m: Measured, random: Generator, studies: int) -> Iterator[Power]:
    for sd, n in product((m.lowest_sd, m.paired_sd, m.highest_sd), BLOCKS):
        d = normal(m, random, (studies, n), sd)
        for effect in EFFECTS:
            log = math.log1p(effect)
            yield Power(
                verdict="different",
                sd=sd,
                blocks=n,
                effect=effect,
                margin=None,
                simulated=float(np.mean(outcomes(d + log).differ())),
                theory=power.power_difference(sd, log, n),
            )
        for margin, effect in product(MARGINS, (0.0, 0.01)):
            log = math.log1p(effect)
            yield Power(
                verdict="equivalent",
                sd=sd,
                blocks=n,
                effect=effect,
                margin=margin,
                simulated=float(np.mean(outcomes(d + log).equivalent(margin))),
                theory=power.power_equivalence(sd, log, margin, n),
            )


def _half_width(sd: float, d: Array) -> HalfWidth:
    n = d.shape[1]
    promised = power.half_width(sd, n)
    assert promised is not None
    realised = np.expm1(outcomes(d).half()) / promised
    tenth, median, ninetieth = np.quantile(realised, [0.1, 0.5, 0.9]).tolist()
    return HalfWidth(
        blocks=n,
        promised=promised,
        tenth=tenth,
        median=median,
        ninetieth=ninetieth,
        as_promised=float(np.mean(np.abs(realised - 1) <= WITHIN)),
        theory=_share_as_promised(n),
    )


def _share_as_promised(n: int) -> float:
    """Of the sample's sd over the true one, whose square is chi-squared over its freedom."""
    low, high = ((n - 1) * (1 + s * WITHIN) ** 2 for s in (-1, 1))
    return float(tests.chi2.cdf(high, n - 1) - tests.chi2.cdf(low, n - 1))


def _bars(
    studies: int,
    noises: Sequence[str],
    coverage: Sequence[Coverage],
    looks: Sequence[Looked],
    power: Sequence[Power],
    half_width: Sequence[HalfWidth],
) -> Iterator[Bar]:
    covered = [c.coverage for c in coverage if c.noise in noises]
    yield _bar("95 % intervals cover 93 to 97 %, noise as measured", covered, 0.93, 0.97)
    most = stats.ALPHA + 3 * math.sqrt(stats.ALPHA * (1 - stats.ALPHA) / studies)
    called = [x.called for x in looks if x.corrected or len(x.looks) == 1]
    what = f"equal arms called different, all looks: at most {100 * most:.2f} %"
    yield _bar(what, called, 0, most)
    for verdict in ("different", "equivalent"):
        off = [abs(p.simulated - p.theory) for p in power if p.verdict == verdict]
        yield _bar(f"power of {verdict!r} within 3 % of theory", off, 0, 0.03)
    for row in half_width:
        what = f"half-width within 30 % of the promise in 80 % of studies of {row.blocks} blocks"
        yield _bar(what, [row.as_promised], 0.8, 1)


def _bar(what: str, values: Sequence[float], least: float, most: float) -> Bar:
    ends = dict.fromkeys(f"{100 * v:.2f}" for v in (min(values), max(values)))
    return Bar(
        what=what,
        found=f"{' to '.join(ends)} %",
        met=least <= min(values) and max(values) <= most,
    )
