"""The slowest of many ranks: every exchange waits for it, so its passes are those of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri  # scipy.stats takes a second to import

from plots.predict.costs import Array

_Z = np.linspace(-10, 10, 801)
_LOG_BELOW = log_ndtr(_Z)
_LOG_DENSITY = -0.5 * (_Z**2 + np.log(2 * np.pi))


def expected_slowest(ranks: Array, multiplier: Callable[[Array], Array]) -> Array:
    """Mean of the largest of `ranks` independent multipliers, each `multiplier(z)`, z normal.

    `multiplier` rises with z: 1 + cv z, or exp(sigma z). The trapezoid rule over the density of the
    largest z, p phi(z) Phi(z)^(p - 1) (David & Nagaraja 2003).
    """
    density = np.exp(_LOG_DENSITY + np.log(ranks)[:, None] + (ranks - 1)[:, None] * _LOG_BELOW)
    return np.asarray(density @ multiplier(_Z) * (_Z[1] - _Z[0]))


def draw_slowest(
    ranks: Array, multiplier: Callable[[Array], Array], generator: np.random.Generator
) -> Array:
    """One draw of the largest for each number of ranks, whatever that is: F^-1(U^(1/p))."""
    above = -np.expm1(np.log(generator.uniform(size=ranks.shape)) / ranks)
    return multiplier(np.asarray(-ndtri(above)))


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Ranks' compute times apart: what stays with a rank, and what changes from step to step."""

    persistent_sd: float  # of the logs of ranks, noise taken off
    transient_sd: float  # of the logs of steps, around their rank's mean
    slowest: float  # the slowest rank's mean over that of all: the whole of it costs every step

    @classmethod
    def of(cls, compute_s: Array) -> Spread:
        """From seconds [step, rank] of at least two each: two-way variance components of logs."""
        logs = np.log(compute_s)
        steps, ranks = logs.shape
        residual = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
        transient = float(np.sum(residual**2)) / ((steps - 1) * (ranks - 1))
        means = logs.mean(axis=0) - logs.mean()
        persistent = max(float(np.var(means, ddof=1)) - transient / steps, 0.0)
        return cls(
            persistent_sd=persistent**0.5,
            transient_sd=transient**0.5,
            slowest=float(np.exp(means.max())),
        )

    @property
    def sd(self) -> float:
        """Of the logs of a step of ranks that are not known."""
        return float(np.hypot(self.persistent_sd, self.transient_sd))
