"""Simulated studies of known truth, through the statistics of this project: what they promise.

Noise is that of committed logs. Every study is log ratios, one per block, of two arms that share
the block's own speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats as tests

from bench.study import stats
from bench.study.looks import nominal_level
from bench.study.stats import Paired
from plots.analyse.study import Analysis

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Noise = Callable[[Generator, tuple[int, int]], Array]  # log ratios [studies, blocks] around 0

STUDIES = 20_000  # of each kind; a share of 5 % is then good to 0.15 % (one standard error)
SEED = 20261122
BLOCKS = (6, 8, 12)
LOOKS = ((6,), (6, 8), (6, 8, 12))
EFFECTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15)  # of the candidate, 0.02 is 2 %
MARGINS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.15)
WITHIN = 0.3  # a half-width is as promised if it is within this share of it
_MOST_BLOCKS = 60  # that are looked at for that


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The noise of measured studies, of logs of seconds: 0.05 is about 5 %."""

    comparisons: int
    freedom: int  # blocks less one, over all comparisons
    paired_sd: float  # of a log ratio between blocks, pooled
    lowest_sd: float  # of any comparison
    highest_sd: float
    run_sd: float  # of one arm's run, if both have their half of the paired variance
    block_sd: float  # what runs of a block share
    residuals: tuple[float, ...]  # log ratios around their comparison's mean, of sd 1


def measured(studies: Iterable[Analysis]) -> Measured:
    """The noise of every comparison with blocks enough for a verdict."""
    studies = list(studies)
    found = [paired for a in studies for paired in _decided(a)]
    logs = [np.log(p.ratios) for p in found]
    sds = [float(np.std(x, ddof=1)) for x in logs]
    paired_sd = stats.pooled_sd(x.tolist() for x in logs)
    points = [t.step_seconds.blocks for a in studies for t in a.throughput]
    of_points = stats.pooled_sd(np.log(x).tolist() for x in points if len(x) >= stats.MIN_BLOCKS)
    assert paired_sd is not None
    assert of_points is not None
    run_sd = paired_sd / math.sqrt(2)
    return Measured(
        comparisons=len(found),
        freedom=sum(p.n - 1 for p in found),
        paired_sd=paired_sd,
        lowest_sd=min(sds),
        highest_sd=max(sds),
        run_sd=run_sd,
        block_sd=math.sqrt(max(0.0, of_points**2 - run_sd**2)),
        residuals=tuple(value for a in studies for value in _residuals_of(a)),
    )


def _residuals_of(a: Analysis) -> list[float]:
    """Log ratios around their comparison's mean, over the pooled sd of the study's comparisons.

    Not over each comparison's own: six values over their own sd have short tails (kurtosis 2.1
    where the noise has 3), and simulated intervals would be called too narrow.
    """
    logs = [np.log(p.ratios) for p in _decided(a)]
    sd = stats.pooled_sd(x.tolist() for x in logs)
    residuals = [(x - x.mean()) * math.sqrt(len(x) / (len(x) - 1)) for x in logs]
    return (np.concatenate(residuals) / sd).tolist() if sd else []


def _decided(a: Analysis) -> list[Paired]:
    return [c.paired for c in a.comparisons if c.paired.n >= stats.MIN_BLOCKS]


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


def noises(m: Measured) -> dict[str, Noise]:
    """By name, with what it is; the first two are the noise measured here."""
    draws: dict[str, Noise] = {
        "normal, as measured": partial(_normal, m),
        "residuals, as measured": partial(_residuals, m),
        "t with 3 degrees": partial(_heavy, m),
        "lognormal, both arms": partial(_lognormal, m),
        "1 block in 4 with 5 x the noise": partial(_slow_node, m),
        "1 run in 4 is 6 % slower": partial(_modes, m),
        "stragglers in one arm alone": _stragglers,
        "1 run in 8 of one arm is 15 % slower": _hits,
    }
    return draws


def _normal(m: Measured, random: Generator, shape: tuple[int, int], sd: float = 0.0) -> Array:
    block = random.normal(0, m.block_sd, shape)
    each = (sd or m.paired_sd) / math.sqrt(2)
    arms = [block + random.normal(0, each, shape) for _ in range(2)]
    return arms[0] - arms[1]


def _residuals(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    drawn: Array = random.choice(np.asarray(m.residuals), shape)
    return m.paired_sd * drawn


def _heavy(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    arms = [m.run_sd * random.standard_t(3, shape) / math.sqrt(3) for _ in range(2)]
    return arms[0] - arms[1]


def _skewed(random: Generator, shape: tuple[int, int]) -> Array:
    """Lognormal (sigma 1) with mean 0 and standard deviation 1."""
    mean, variance = math.exp(0.5), (math.e - 1) * math.e
    return (random.lognormal(0, 1, shape) - mean) / math.sqrt(variance)


def _lognormal(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    return m.run_sd * (_skewed(random, shape) - _skewed(random, shape))


def _slow_node(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    return _normal(m, random, shape) * np.where(random.random(shape) < 0.25, 5, 1)


def _modes(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    slow = [math.log(1.06) * (random.random(shape) < 0.25) for _ in range(2)]
    d: Array = _normal(m, random, shape, _QUIET) + slow[0] - slow[1]
    return d


_QUIET = 0.005 * math.sqrt(2)  # paired sd where nothing but the named disturbance is loud


def _stragglers(random: Generator, shape: tuple[int, int]) -> Array:
    return random.normal(0, _QUIET, shape) + 0.03 * _skewed(random, shape)


def _hits(random: Generator, shape: tuple[int, int]) -> Array:
    hit = math.log(1.15) * (random.random(shape) < 1 / 8)
    return random.normal(0, _QUIET, shape) + hit - math.log(1.15) / 8


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
        d = _normal(m, random, (studies, n), sd)
        for effect in EFFECTS:
            log = math.log1p(effect)
            yield Power(
                verdict="different",
                sd=sd,
                blocks=n,
                effect=effect,
                margin=None,
                simulated=float(np.mean(outcomes(d + log).differ())),
                theory=stats.power_difference(sd, log, n),
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
                theory=stats.power_equivalence(sd, log, margin, n),
            )


def _half_width(sd: float, d: Array) -> HalfWidth:
    n = d.shape[1]
    promised = stats.half_width(sd, n)
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
