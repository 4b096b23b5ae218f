"""Which sample goes to which rank at which step: a function of the seed, for all backends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from bench.config import RunConfig
from bench.data.dataset import Indices

IndexArray = np.ndarray[Any, np.dtype[np.int64]]


def rank_indices(config: RunConfig, rank: int, samples: int | None) -> Iterator[Indices]:
    """Yield the sample indices of each of this rank's batches, without end."""
    share, per_epoch = config.samples_per_rank, (samples or 0) // config.samples_per_step
    if config.sharding == "fixed":
        assert samples is not None, "the rules refuse fixed shards of an endless set"
        part = fixed_part(samples, config.world_size, rank, config.seed)
        for epoch in count():
            # rank + 1: numpy pads a short key with zeros, and rank 0 would repeat another order
            random = np.random.default_rng([config.seed, epoch, rank + 1])
            order = part[random.permutation(len(part))]
            # as many on every rank, also where parts differ by one
            for step in range(per_epoch):
                yield Indices(order[step * share : (step + 1) * share].tolist(), epoch)
    for step, indices in enumerate(step_indices(samples, config.samples_per_step, config.seed)):
        epoch = step // per_epoch if samples is not None else 0
        yield Indices(indices[rank * share : (rank + 1) * share].tolist(), epoch)


def step_indices(samples: int | None, samples_per_step: int, seed: int) -> Iterator[IndexArray]:
    """Yield each step's global batch of reshuffled sample indices, without end, for any world size.

    Epochs are permutations from (seed, epoch), less the rest that fills no step: each sample is
    used at most once per epoch. An endless set is taken in order.
    """
    for epoch in count():
        order = None
        if samples is not None:
            order = np.random.default_rng([seed, epoch]).permutation(samples)
        for step in count() if samples is None else range(samples // samples_per_step):
            window = np.arange(step * samples_per_step, (step + 1) * samples_per_step)
            yield window if order is None else order[window]


def fixed_part(samples: int, world_size: int, rank: int, seed: int) -> IndexArray:
    """Draw the fixed part of `rank` for all epochs; parts are disjoint and equal to within one."""
    # at random: folders come sorted, and a rank with some classes alone would train another model
    return np.random.default_rng([seed, 0, 0, 1]).permutation(samples)[rank::world_size]
