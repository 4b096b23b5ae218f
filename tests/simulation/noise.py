"""The noise of measured studies, and disturbances of other kinds, to draw log ratios from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bench.study import stats
from bench.study.stats import Paired
from plots.analyse.study import Analysis

Array = NDArray[np.float64]
Noise = Callable[[Generator, tuple[int, int]], Array]  # log ratios [studies, launches] around 0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The noise of measured studies, of logs of seconds: 0.05 is about 5 %."""

    comparisons: int
    freedom: int  # launches less one, over all comparisons
    paired_sd: float  # of a log ratio between launches, pooled
    lowest_sd: float  # of any comparison
    highest_sd: float
    run_sd: float  # of one arm's run, if both have their half of the paired variance
    launch_sd: float  # what runs of a launch share
    residuals: tuple[float, ...]  # log ratios around their comparison's mean, of sd 1


def measured(studies: Iterable[Analysis]) -> Measured:
    """Measure the noise of every comparison with launches enough for a verdict."""
    studies = list(studies)
    found = [paired for a in studies for paired in _decided(a)]
    logs = [np.log(p.ratios) for p in found]
    sds = [float(np.std(x, ddof=1)) for x in logs]
    paired_sd = stats.pooled_sd(x.tolist() for x in logs)
    points = [t.step_seconds.launches for a in studies for t in a.throughput]
    of_points = stats.pooled_sd(np.log(x).tolist() for x in points if len(x) >= stats.MIN_LAUNCHES)
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
        launch_sd=math.sqrt(max(0.0, of_points**2 - run_sd**2)),
        residuals=tuple(value for a in studies for value in _residuals_of(a)),
    )


def _residuals_of(a: Analysis) -> list[float]:
    """Divide log ratios around their comparison's mean by the study's pooled sd of comparisons.

    Not by each comparison's own: six values over their own sd have short tails (kurtosis 2.1
    where the noise has 3), and simulated intervals would be called too narrow.
    """
    logs = [np.log(p.ratios) for p in _decided(a)]
    sd = stats.pooled_sd(x.tolist() for x in logs)
    residuals = [(x - x.mean()) * math.sqrt(len(x) / (len(x) - 1)) for x in logs]
    return (np.concatenate(residuals) / sd).tolist() if sd else []


def _decided(a: Analysis) -> list[Paired]:
    return [c.paired for c in a.comparisons if c.paired.n >= stats.MIN_LAUNCHES]


def noises(m: Measured) -> dict[str, Noise]:
    """Return what draws each noise, by name; the first two are the noise measured here."""
    draws: dict[str, Noise] = {
        "normal, as measured": partial(normal, m),
        "residuals, as measured": partial(_residuals, m),
        "t with 3 degrees": partial(_heavy, m),
        "lognormal, both arms": partial(_lognormal, m),
        "1 launch in 4 with 5 x the noise": partial(_slow_node, m),
        "1 run in 4 is 6 % slower": partial(_modes, m),
        "stragglers in one arm alone": _stragglers,
        "1 run in 8 of one arm is 15 % slower": _hits,
    }
    return draws


def normal(m: Measured, random: Generator, shape: tuple[int, int], sd: float = 0.0) -> Array:
    """Draw log ratios of two arms that share their launch; `sd` paired, by default as measured."""
    launch = random.normal(0, m.launch_sd, shape)
    each = (sd or m.paired_sd) / math.sqrt(2)
    arms = [launch + random.normal(0, each, shape) for _ in range(2)]
    return arms[0] - arms[1]


def _residuals(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    drawn: Array = random.choice(np.asarray(m.residuals), shape)
    return m.paired_sd * drawn


def _heavy(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    arms = [m.run_sd * random.standard_t(3, shape) / math.sqrt(3) for _ in range(2)]
    return arms[0] - arms[1]


def _skewed(random: Generator, shape: tuple[int, int]) -> Array:
    """Draw lognormal numbers (sigma 1), moved to mean 0 and scaled to standard deviation 1."""
    mean, variance = math.exp(0.5), (math.e - 1) * math.e
    return (random.lognormal(0, 1, shape) - mean) / math.sqrt(variance)


def _lognormal(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    return m.run_sd * (_skewed(random, shape) - _skewed(random, shape))


def _slow_node(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    return normal(m, random, shape) * np.where(random.random(shape) < 0.25, 5, 1)


def _modes(m: Measured, random: Generator, shape: tuple[int, int]) -> Array:
    slow = [math.log(1.06) * (random.random(shape) < 0.25) for _ in range(2)]
    d: Array = normal(m, random, shape, _QUIET) + slow[0] - slow[1]
    return d


_QUIET = 0.005 * math.sqrt(2)  # paired sd where nothing but the named disturbance is loud


def _stragglers(random: Generator, shape: tuple[int, int]) -> Array:
    return random.normal(0, _QUIET, shape) + 0.03 * _skewed(random, shape)


def _hits(random: Generator, shape: tuple[int, int]) -> Array:
    hit = math.log(1.15) * (random.random(shape) < 1 / 8)
    return random.normal(0, _QUIET, shape) + hit - math.log(1.15) / 8
