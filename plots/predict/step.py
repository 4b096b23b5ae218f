"""A training step at numbers of ranks: what one process takes, stretched, and its exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from bench.instrument.timeline import Timeline
from bench.study.collectives import line
from plots.predict.costs import Array
from plots.predict.link import Link
from plots.predict.stream import Buckets, Cycles


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """A step of one process without a framework; gradients in the order in which they are ready."""

    sizes: Array  # bytes of each gradient
    ready_s: Array  # after the backward pass began
    forward_s: float
    backward_s: float
    optimizer_s: float

    @classmethod
    def of(cls, timeline: Timeline) -> Self:
        """A recorded or derived step."""
        return cls(
            sizes=np.array([gradient.bytes for gradient in timeline.gradients], float),
            ready_s=np.array([gradient.ready_seconds for gradient in timeline.gradients]),
            forward_s=timeline.forward_seconds,
            backward_s=timeline.backward_seconds,
            optimizer_s=timeline.optimizer_seconds,
        )

    @property
    def passes_s(self) -> float:
        """Both passes."""
        return self.forward_s + self.backward_s

    @property
    def step_s(self) -> float:
        """The whole step of one process, against which efficiency is taken."""
        return self.passes_s + self.optimizer_s

    @property
    def arrival_s(self) -> Array:
        """When each gradient is ready, after the step's begin."""
        return self.forward_s + self.ready_s


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """How much longer the passes take than those of one process: factors that are measured, so none
    has a default.

    `wrapper`: of the framework's hooks, on one rank. `overlap`: of an exchange beside the passes,
    from two ranks on. That of the slowest rank is by ranks, and comes with them.
    """

    wrapper: float
    overlap: float

    def factors(self, ranks: Array, slowest: Array | float = 1.0) -> Array:
        """Of every number of ranks: one rank's slowness holds up each exchange."""
        return np.asarray(self.wrapper * np.where(ranks > 1, self.overlap, 1.0) * slowest)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTimes:
    """By row: seconds of the step, of it the passes, and what the exchange adds to them."""

    step_s: Array
    passes_s: Array
    exposed_s: Array


def step_times(profile: Profile, factors: Array, exchanged_s: Array) -> StepTimes:
    """The optimiser begins after both passes and the last reduction, at `exchanged_s`."""
    passes = profile.passes_s * factors
    end = np.maximum(passes, exchanged_s)
    return StepTimes(step_s=end + profile.optimizer_s, passes_s=passes, exposed_s=end - passes)


def predict(
    profile: Profile,
    link: Link,
    exchange: Buckets | Cycles,
    ranks: Array,
    factors: Array,
    exchange_factors: Array | float = 1.0,
) -> StepTimes:
    """A step on each number of ranks, whose passes take `factors` times those of the profile, and
    its reductions `exchange_factors` times those of the link.

    No exchange is waited for where it costs nothing, as on one rank.
    """
    alone = link.over(ranks)

    def cost(size: Array | float) -> Array:
        return exchange_factors * alone(size)

    operations = exchange.run(profile.sizes, profile.arrival_s, factors, cost)
    costs = alone(profile.sizes.sum()) > 0
    return step_times(profile, factors, np.where(costs, operations.last_end_s, 0.0))


def weak_efficiency(profile: Profile, times: StepTimes) -> Array:
    """T(1) / T(p), of T(1) without a framework; every rank keeps the profile's batch."""
    return profile.step_s / times.step_s


@dataclass(frozen=True, kw_only=True)
class BatchLine:
    """Seconds of both passes against a rank's batch: `fixed_s + image_s * images`."""

    fixed_s: float
    image_s: float

    @classmethod
    def fitted(cls, images: Sequence[int], passes_s: Sequence[float]) -> Self:
        """To a sweep of batches, by least relative squares."""
        cost, _ = line(images, passes_s)
        return cls(fixed_s=cost.latency_s, image_s=cost.s_per_byte)

    def factors(self, images: Array | float, profile_images: int) -> Array:
        """Passes of batches over those of the profile's: every ready time is stretched alike."""
        whole = self.fixed_s + self.image_s * profile_images
        return np.asarray((self.fixed_s + self.image_s * images) / whole)


def strong_efficiency(
    profile: Profile, times: StepTimes, ranks: Array, one_rank_factor: float
) -> Array:
    """T(1) / (p T(p)) of one global batch, whose passes take `one_rank_factor` of the profile's."""
    alone = profile.passes_s * one_rank_factor + profile.optimizer_s
    return np.asarray(alone / (ranks * times.step_s))
