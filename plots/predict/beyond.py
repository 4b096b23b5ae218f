"""A curve beyond the ranks that were measured: launches and link drawn, the slowdown solved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.backends.buckets import limits
from plots.predict.costs import Array
from plots.predict.link import Link
from plots.predict.step import BatchLine, Profile, StepTimes, predict
from plots.predict.stragglers import expected_slowest
from plots.predict.stream import Buckets, Cycles

DOUBLING_SD = 0.01  # of a predicted one, for each doubling beyond the ranks that were fitted
# An agreement of ranks on what is ready: a bit for each gradient (Horovod's response cache).
_AGREEMENT_BYTES = 32.0
_OVERLAPS = np.log([0.8, 4.0])  # in which the factor is looked for
_GRID, _ROUNDS = 13, 4  # each round looks six times closer
_TABLE_STEP = 0.005  # of the log of a factor, between two steps that are modelled
_EXCHANGES = np.log([1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0])  # in which that one is
# Where steps do not tell the factors, they are near 1: sd of the logs, against one step in 1,000.
_STEP_SD = 1e-3
_BESIDE_SD, _SLEPT_SD, _EXCHANGE_SD = 1.0, 0.02, 0.2
_CAPS_MIB = (1.0, 5.0, 10.0, 50.0, 100.0)
_CYCLES_S = (0.1e-3, 0.5e-3, 2e-3, 5e-3, 10e-3)


@dataclass(frozen=True, kw_only=True)
class SharedCores:
    """Cores of a node, and how many of them one rank without others keeps busy on the mean.

    With others a rank is busy for longer, but it polls for them; what an exchange costs is its
    link's.
    """

    cores: float
    busy_cores: float
    most_ranks: float = np.inf  # of a node; all ranks share one where there is no other

    def longest_wait(self, ranks: Array | float) -> Array:
        """In steps: ranks that work at one time, of which there are more than cores, take turns."""
        of_node = np.minimum(ranks, self.most_ranks)
        return np.asarray(self.busy_cores * np.maximum(of_node / self.cores - 1, 0.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class CurveModel:
    """What a curve's steps are made of. Its factors are solved from `fitted_ranks`."""

    profile: Profile  # of one process with all images of a rank (weak) or of a step (strong)
    exchange: Buckets | Cycles
    links: Sequence[Link]  # the best fit first, then what else the sweeps allow
    fitted_ranks: Array  # two and more
    rank_sd: float = 0.0  # of the logs of ranks' passes
    images: int = 1
    batches: BatchLine | None = None  # of strong scaling, which divides the images
    shared: SharedCores | None = None  # None: every rank has cores of its own
    slept: bool = False  # passes are hardly slowed by an exchange, and it mostly is

    def stretch(self, ranks: Array) -> Array:
        """Passes over those of the profile: fewer images, and the slowest of all ranks."""
        sizes, inverse = np.unique(ranks, return_inverse=True)
        slowest = expected_slowest(sizes, lambda z: np.exp(self.rank_sd * z))
        factors = np.where(sizes > 1, slowest, 1.0)
        if self.batches is not None:
            factors = factors * self.batches.factors(self.images / sizes, self.images)
        return np.asarray(factors[inverse])

    def times(
        self, link: Link, ranks: Array, factors: Array, exchange_factors: Array | float = 1.0
    ) -> StepTimes:
        """Of steps by row, whose passes take `factors` times those of the same images alone."""
        exchange = self.exchange
        if isinstance(exchange, Cycles):
            exchange = replace(exchange, negotiation_s=link.seconds(_AGREEMENT_BYTES, ranks))
        stretched = factors * self.stretch(ranks)
        return predict(self.profile, link, exchange, ranks, stretched, exchange_factors)

    def efficiency(self, step_s: Array, alone_s: Array | float, ranks: Array) -> Array:
        """T(1) / T(p) of weak scaling, and that over p of strong scaling."""
        return np.asarray(alone_s / step_s / (1.0 if self.batches is None else ranks))


@dataclass(frozen=True, kw_only=True, eq=False)
class LaunchDraws:
    """Seconds of a step, as far as the launches tell them."""

    alone_s: Array  # of a plain process, [draw]
    own_s: Array | None  # with the framework on one rank, [draw]; None where not measured
    steps_s: Array  # [draw, fitted rank]


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """How much longer both passes take than those of a plain process, [draw]."""

    wrapper: Array  # with the framework, on one rank
    overlap: Array  # beside an exchange, times that
    exchange: Array  # reductions beside passes, over the link's


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """What the draws say of `ranks`, [draw, rank]."""

    ranks: Array
    step_s: Array
    exposed_s: Array
    efficiency: Array


def draw_means(seconds: Array, count: int, generator: np.random.Generator) -> Array:
    """Geometric means [draw, point] of launches [launch, point], two at least, all points of a
    launch together: normal weights, so that of few launches the interval is Student's.
    """
    logs = np.log(seconds)
    launches = len(logs)
    weights = generator.standard_normal((count, launches))
    scale = np.sqrt(launches * generator.chisquare(launches - 1, count))
    mean = logs.mean(axis=0)
    return np.asarray(np.exp(mean + weights @ (logs - mean) / scale[:, None]))


def solve(model: CurveModel, draws: LaunchDraws) -> Factors:
    """The factors that explain the fitted ranks best, each draw with its link."""
    profile, wrapper = model.profile, np.ones_like(draws.alone_s)
    if draws.own_s is not None:
        wrapper = np.maximum((draws.own_s - profile.optimizer_s) / profile.passes_s, 0.5)
    by_link = [
        _beside(model, link, wrapper[rows], draws.steps_s[rows])
        for link, rows in _by_link(model, len(wrapper))
    ]
    overlap, exchange = (np.concatenate(parts) for parts in zip(*by_link, strict=True))
    return Factors(wrapper=wrapper, overlap=overlap, exchange=exchange)


def project(
    model: CurveModel,
    draws: LaunchDraws,
    factors: Factors,
    ranks: Array,
    generator: np.random.Generator,
) -> Projection:
    """Of a study with as many launches.

    What a mean of so few launches leaves open is in it twice, of the fit and of what would be
    measured, and `DOUBLING_SD` for each doubling beyond. Ranks that share cores wait for one
    another, never or for as long as they can: each draw for a share of it.
    """
    stretched = factors.wrapper[:, None] * np.where(ranks > 1, factors.overlap[:, None], 1.0)
    each = []
    for link, rows in _by_link(model, len(stretched)):
        shape = stretched[rows].shape
        p = np.broadcast_to(ranks, shape).ravel()
        exchange = np.broadcast_to(factors.exchange[rows, None], shape).ravel()
        times = model.times(link, p, stretched[rows].ravel(), exchange)
        each.append((times.step_s.reshape(shape), times.exposed_s.reshape(shape)))
    step_s, exposed_s = (np.concatenate(parts) for parts in zip(*each, strict=True))
    beyond = np.maximum(np.log2(ranks / model.fitted_ranks[-1]), 0.0)
    scatter = np.std(np.log(draws.steps_s[:, -1] / draws.alone_s))
    noise = generator.normal(0.0, np.hypot(scatter, DOUBLING_SD * beyond), step_s.shape)
    step_s = step_s * np.exp(noise)
    if model.shared is not None:
        share = generator.uniform(size=(len(step_s), 1))
        # what the fitted ranks wait for is in their steps
        longest, fitted = map(model.shared.longest_wait, (ranks, model.fitted_ranks[-1:]))
        step_s = step_s + share * np.maximum(longest - fitted, 0.0) * _fitted_s(draws)
    efficiency = model.efficiency(step_s, draws.alone_s[:, None], ranks)
    return Projection(ranks=ranks, step_s=step_s, exposed_s=exposed_s, efficiency=efficiency)


def _fitted_s(draws: LaunchDraws) -> float:
    """Of a step at the largest fitted ranks."""
    return float(np.exp(np.mean(np.log(draws.steps_s[:, -1]))))


def _by_link(model: CurveModel, count: int) -> Iterator[tuple[Link, NDArray[np.intp]]]:
    """The draws shared out to the links, in their order."""
    shares = np.array_split(np.arange(count), min(len(model.links), count))
    yield from zip(model.links, shares, strict=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class _StepTable:
    """Seconds of a step by the factors of its passes, rising: between two of them nearly straight.

    So a step is modelled for each of these alone, and not for each draw.
    """

    factors: Array
    step_s: Array  # [exchange, factor, rank]

    @classmethod
    def of(cls, model: CurveModel, link: Link, ends: tuple[float, float], exchanges: Array) -> Self:
        """Over the logs between `ends`."""
        factors = np.exp(np.linspace(*ends, int(np.ptp(ends) / _TABLE_STEP) + 2))
        shape = (len(exchanges), len(factors), len(model.fitted_ranks))
        rows = (exchanges[:, None, None], factors[:, None], model.fitted_ranks)
        slower, passes, ranks = (np.broadcast_to(each, shape).ravel() for each in rows)
        step_s = model.times(link, ranks, passes, slower).step_s.reshape(shape)
        return cls(factors=factors, step_s=step_s)

    def at(self, factors: Array) -> Array:
        """Seconds [draw, exchange, row, rank] by factors [draw, exchange, row]."""
        seconds = np.empty((*factors.shape, self.step_s.shape[2]))
        for exchange, rank in np.ndindex(self.step_s.shape[0], self.step_s.shape[2]):
            known = self.step_s[exchange, :, rank]
            seconds[:, exchange, :, rank] = np.interp(factors[:, exchange], self.factors, known)
        return seconds


def _beside(model: CurveModel, link: Link, wrapper: Array, steps_s: Array) -> tuple[Array, Array]:
    """By draw the factors of passes and of reductions that explain the fitted ranks best.

    The passes' is looked for beside each of the reductions', in rounds that look closer.
    """
    sd, exchanges = (_SLEPT_SD, _EXCHANGES) if model.slept else (_BESIDE_SD, _EXCHANGES[:1])
    first, last = np.clip(_OVERLAPS, -5 * sd, 5 * sd)
    logs = np.log(wrapper)
    table = _StepTable.of(model, link, (first + logs.min(), last + logs.max()), np.exp(exchanges))
    low, high = (np.full((len(wrapper), len(exchanges)), end) for end in (first, last))
    for _ in range(_ROUNDS):
        grid = low[..., None] + (high - low)[..., None] * np.linspace(0.0, 1.0, _GRID)
        step_s = table.at(wrapper[:, None, None] * np.exp(grid))
        off = np.log(step_s / steps_s[:, None, None, :]) / _STEP_SD
        lost = np.sum(off**2, axis=3) + (grid / sd) ** 2
        best = np.take_along_axis(grid, lost.argmin(axis=2)[..., None], axis=2)[..., 0]
        width = (high - low) / (_GRID - 1)
        low, high = best - width, best + width
    least = lost.min(axis=2) + (exchanges / _EXCHANGE_SD) ** 2
    chosen = least.argmin(axis=1)
    return np.exp(best[np.arange(len(best)), chosen]), np.exp(exchanges[chosen])


def helps(model: CurveModel, factors: Factors, ranks: float) -> Iterator[tuple[str, float]]:
    """Changes, each by itself, and how much efficiency each adds at `ranks`, the first fit's."""
    link, p = model.links[0], np.array([ranks])
    factor = np.array([np.median(factors.wrapper * factors.overlap)])
    slower = float(np.median(factors.exchange))

    def reached(changed: CurveModel, by: Link = link) -> float:
        step_s = changed.times(by, p, factor, slower).step_s
        return float(changed.efficiency(step_s, changed.profile.step_s, p)[0])

    before = reached(model)
    yield "twice the bandwidth", reached(model, _faster(link, 2.0, 1.0)) - before
    yield "half the latency", reached(model, _faster(link, 1.0, 0.5)) - before
    ways = {name: reached(replace(model, exchange=x)) for name, x in _exchanges(model.exchange)}
    best = max(ways, key=lambda name: ways[name])
    yield best, ways[best] - before
    if model.batches is None:
        # passes in proportion to the images
        profile = model.profile
        longer = replace(
            profile,
            ready_s=2 * profile.ready_s,
            forward_s=2 * profile.forward_s,
            backward_s=2 * profile.backward_s,
        )
        yield "twice the images of a rank", reached(replace(model, profile=longer)) - before


def _exchanges(exchange: Buckets | Cycles) -> Iterator[tuple[str, Buckets | Cycles]]:
    if isinstance(exchange, Cycles):
        for cycle_s in _CYCLES_S:
            yield f"a cycle of {1e3 * cycle_s:g} ms", replace(exchange, cycle_s=cycle_s)
    else:
        for mib in _CAPS_MIB:
            yield f"buckets of {mib:g} MiB", Buckets(limits_bytes=limits(mib))


def _faster(link: Link, rate: float, latency: float) -> Link:
    """Both levels of every regime; a start takes as long as before."""
    factors = {
        "bytes_per_s": rate,
        "node_bytes_per_s": rate,
        "latency_seconds": latency,
        "node_latency_seconds": latency,
    }
    regimes = []
    for regime in link.regimes:
        changes = {k: getattr(regime, k) for k in factors}
        changed = {k: v * factors[k] for k, v in changes.items() if v is not None}
        regimes.append(regime.model_copy(update=changed))
    return link.model_copy(update={"regimes": tuple(regimes)})
