"""A published table: its smallest worlds are fitted, and the others predicted, as efficiencies.

Parameters are drawn, weighted by the rows that are fitted, and drawn again near the best: rounds of
importance sampling (population Monte Carlo, Cappe et al. 2004). What the rows do not tell stays
wide; rows that the model cannot explain widen all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plots.predict.beyond import DOUBLING_SD
from plots.predict.costs import ALGORITHMS, Array
from plots.predict.step import Profile, step_times
from plots.predict.stragglers import expected_slowest
from plots.predict.stream import Buckets, Cycles

_LEVELS = ("ring", "tree", "two_level")  # the fastest is taken, as a library chooses
SUPERLINEAR = 1.04  # efficiency above which no exchange explains a row
_DRAWS, _KEPT = 4_000, 1_000
_LEAST = 400  # draws that the weights of the last round should leave
_ROUNDS = 8
_WIDER = 1.3  # a round's spread over that of the draws before
_FREEDOM = 5  # of its t distribution, whose tails reach what the round before missed
# Correlation of what two rows of a curve miss: at ranks as good as equal, and for each doubling.
_EQUAL, _DOUBLED = 0.9, 0.85


class Parameter(NamedTuple):
    """A positive number that a table does not tell: its median beforehand, and its log's sd."""

    median: float
    log_sd: float


# What is believed before any row is seen, wide enough for Ethernet of 1 Gbit/s and for NVLink.
PRIOR = {
    "slowdown": Parameter(1.04, 0.06),  # of both passes, by hooks and by an exchange beside them
    "bytes_per_s": Parameter(4e9, 1.6),  # of one rank between nodes
    "node_speed": Parameter(5.0, 0.8),  # inside a node, over between nodes
    "latency_s": Parameter(20e-6, 1.0),  # of a step between nodes
    "rank_sd": Parameter(0.01, 0.7),  # of a rank's passes: the slowest holds up all
    "fixed_share": Parameter(0.05, 0.8),  # of the passes, whatever the batch: of strong scaling
    "row_sd": Parameter(0.02, 0.5),  # of the log of a published rate: one run, and what is not here
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One curve: efficiencies by ranks, nan where a row is only to be predicted.

    `profile` is the step of one rank, in the seconds of the table; in strong scaling a rank has the
    batch of that step divided by the number of ranks.
    """

    profile: Profile
    exchange: Buckets | Cycles
    ranks: Array
    efficiency: Array  # against that of `base_ranks`, which is taken as 1
    base_ranks: float = 1.0
    ranks_per_node: int = 1
    strong: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Parameters [draw] by name, as likely as the fitted rows make them."""

    draws: dict[str, Array]
    fitted_ranks: float  # the most
    most_ranks: float  # up to which rows were fitted
    effective: float  # how many of the last round's draws the weights leave

    def median(self, name: str) -> float:
        return float(np.median(self.draws[name]))


def scaled(profile: Profile, step_s: float) -> Profile:
    """The same step in other seconds: every part is stretched alike."""
    factor = step_s / profile.step_s
    return replace(
        profile,
        ready_s=profile.ready_s * factor,
        forward_s=profile.forward_s * factor,
        backward_s=profile.backward_s * factor,
        optimizer_s=profile.optimizer_s * factor,
    )


def model(series: Series, draws: dict[str, Array]) -> Array:
    """Efficiency [draw, rank] against `base_ranks`."""
    if series.base_ranks > 1:
        alone = replace(series, base_ranks=1.0)
        base = replace(alone, ranks=np.array([series.base_ranks]))
        return np.asarray(model(alone, draws) / model(base, draws))
    count, sizes = len(draws["slowdown"]), len(series.ranks)
    p = np.tile(series.ranks, count)
    rows = {name: np.repeat(values, sizes) for name, values in draws.items()}
    slowest = 1 + rows["rank_sd"] * np.tile(expected_slowest(series.ranks, lambda z: z), count)
    share = rows["fixed_share"] / (1 + rows["fixed_share"])
    batch = share + (1 - share) / p if series.strong else np.ones_like(p)
    factors = np.where(p > 1, rows["slowdown"] * slowest, 1.0) * batch

    latency, rate, near = rows["latency_s"], rows["bytes_per_s"], rows["node_speed"]
    terms = [ALGORITHMS[name](p, series.ranks_per_node) for name in _LEVELS]
    lines = [t.line(latency, rate, latency / near, rate * near) for t in terms]

    def cost(size: Array | float) -> Array:
        return np.asarray(np.minimum.reduce([start_s + x * size for start_s, x in lines]))

    profile = series.profile
    end_s = series.exchange.run(profile.sizes, profile.arrival_s, factors, cost).last_end_s
    times = step_times(profile, factors, np.where(p > 1, end_s, 0.0))
    ideal = profile.step_s / p if series.strong else profile.step_s
    return np.asarray(ideal / times.step_s).reshape(count, sizes)


def fit(series: Sequence[Series], most_ranks: float, seed: int = 0) -> Fit:
    """Of all series together, from their rows of two to `most_ranks` ranks."""
    from scipy.stats import multivariate_t  # here: it takes a second to import

    generator = np.random.default_rng(seed)
    centre, sd = np.array([[np.log(p.median), p.log_sd] for p in PRIOR.values()]).T
    logs = generator.normal(centre, sd, (_DRAWS, len(sd)))
    logged = _likelihood(series, logs, most_ranks)
    for _ in range(_ROUNDS):
        weights = _weights(logged)
        if _effective(weights) >= _LEAST:
            break
        mean = weights @ logs
        apart = logs - mean
        spread = (weights[:, None] * apart).T @ apart + np.diag((0.05 * sd) ** 2)
        proposal = multivariate_t(mean, _WIDER**2 * spread, df=_FREEDOM, seed=generator)
        logs = proposal.rvs(_DRAWS)
        belief = -0.5 * np.sum(((logs - centre) / sd) ** 2, axis=1)
        logged = _likelihood(series, logs, most_ranks) + belief - proposal.logpdf(logs)
    weights = _weights(logged)
    kept = logs[generator.choice(_DRAWS, _KEPT, p=weights)]
    sizes = [float(n) for one in series for n in one.ranks[is_fitted(one, most_ranks)]]
    return Fit(
        draws={name: np.exp(kept[:, i]) for i, name in enumerate(PRIOR)},
        fitted_ranks=max(sizes, default=1.0),
        most_ranks=most_ranks,
        effective=_effective(weights),
    )


def predict(series: Series, fitted: Fit, seed: int = 0) -> Array:
    """Efficiency [draw, rank] of one published run, with what the model leaves open."""
    generator = np.random.default_rng(seed)
    beyond = np.maximum(np.log2(series.ranks / fitted.fitted_ranks), 0.0)
    efficiency = model(series, fitted.draws)
    rows = is_fitted(series, fitted.most_ranks)
    known, others = series.ranks[rows], series.ranks[~rows]
    share = np.ones(len(series.ranks))
    if rows.any():
        weights = np.linalg.solve(missed_alike(known, known), missed_alike(known, others))
        missed = np.log(series.efficiency[rows] / efficiency[:, rows])
        efficiency[:, ~rows] *= np.exp(missed @ weights)
        share[~rows] = 1 - np.sum(weights * missed_alike(known, others), axis=0)
    sd = np.hypot(fitted.draws["row_sd"][:, None] * np.sqrt(share), DOUBLING_SD * beyond)
    return np.asarray(efficiency * np.exp(generator.normal(0.0, sd, efficiency.shape)))


def missed_alike(ranks: Array, others: Array) -> Array:
    """Correlations [rank, other] of what the model leaves open: near numbers miss alike."""
    doublings = np.abs(np.log2(ranks[:, None] / others))
    return np.where(doublings == 0, 1.0, _EQUAL * _DOUBLED**doublings)


def is_fitted(series: Series, most_ranks: float) -> NDArray[np.bool_]:
    """By row: published, of few enough ranks, and not superlinear."""
    few = (series.ranks > 1) & (series.ranks <= most_ranks)
    return np.asarray(few & (series.efficiency <= SUPERLINEAR))  # nan is not


def _likelihood(series: Sequence[Series], logs: Array, most_ranks: float) -> Array:
    """Log likelihood [draw] of the rows that are fitted."""
    draws = {name: np.exp(logs[:, i]) for i, name in enumerate(PRIOR)}
    total = np.zeros(len(logs))
    for one in series:
        rows = is_fitted(one, most_ranks)
        if rows.any():
            small = replace(one, ranks=one.ranks[rows], efficiency=one.efficiency[rows])
            sd = draws["row_sd"][:, None]
            error = np.log(small.efficiency / model(small, draws)) / sd
            apart = np.linalg.solve(
                np.linalg.cholesky(missed_alike(small.ranks, small.ranks)), error.T
            )
            total -= np.sum(0.5 * apart.T**2 + np.log(sd), axis=1)
    return total


def _effective(weights: Array) -> float:
    return float(1 / np.sum(weights**2))


def _weights(logs: Array) -> Array:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
