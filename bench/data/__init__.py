"""The data set of a run, each rank's batches of it, and the run log's description of both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from bench.config import ON_DISK, RunConfig, UsageError
from bench.config.fields import PUBLISHED
from bench.data.dataset import Batch, Blank, Digits, Generated, Images, Indices, Synthetic
from bench.lifecycle.peers import end_with

__all__ = ["Batch", "Images", "Indices", "batches", "describe", "load_held_out", "load_images"]
__all__ += ["step_indices"]

IndexArray = np.ndarray[Any, np.dtype[np.int64]]
_SHARDING = {
    "reshuffled": "reshuffled over all ranks every epoch",
    "fixed": "a fixed part per rank for all epochs, in a new order every epoch",
}
_PREPROCESSING = {
    "inside": "inside the clock",
    "outside": "outside the clock: all batches made beforehand and kept in memory",
    "resident": "outside the clock: one batch, kept on the device, is every step's",
}


def load_images(config: RunConfig) -> Images:
    """Load the data set of `config`. Raises UsageError if it is missing, unfit or too small."""
    if config.emulate is not None:
        from bench.instrument.timeline import read_for

        return Blank(read_for(config)[0].classes)
    images = _load(config)
    name = f"dataset={config.dataset}"
    if images.classes < 2:
        raise UsageError(
            f"{name} has one class, so its loss is 0 and nothing is learnt; add others"
        )
    if images.samples is not None and images.samples < config.samples_per_step:
        few = f"{name} has {images.samples}; use a smaller batch"
        raise UsageError(f"a step takes {config.samples_per_step} samples, but {few}")
    return images


def load_held_out(config: RunConfig, images: Images) -> Images:
    """Load the held-out samples that belong to `images`. Raises UsageError if missing or unfit."""
    if ":" not in config.dataset:
        return _load(config, held_out=True)
    from bench.data import custom

    assert isinstance(images, custom.Own)
    return images.held_out()


def _load(config: RunConfig, held_out: bool = False) -> Images:
    if ":" in config.dataset:  # imported only where it is asked for
        from bench.data import custom

        return custom.load(config)
    if config.dataset in ON_DISK:
        from bench.data import on_disk

        return on_disk.load(config, held_out)
    if config.dataset == "synthetic":
        return Synthetic(config)
    return (Digits if config.dataset == "digits" else Generated)(config, held_out)


class _Loaded(Dataset[Batch | UsageError]):
    """A data set that returns a UsageError instead of raising it in a data-loading process."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def __getitems__(self, indices: list[int]) -> Batch | UsageError:
        try:
            return self._images.__getitems__(indices)
        except UsageError as error:
            return error


def batches(
    config: RunConfig,
    rank: int,
    images: Images,
    on_batch: Callable[[], object] = lambda: None,
) -> Iterator[Batch]:
    """Return an iterator over this rank's batches, one for each step.

    It is endless. With preprocessing=outside it has the run's batches alone: this function loads
    them before it returns, and calls `on_batch` after each. A faulty sample raises UsageError.
    """
    loader: DataLoader[Batch | UsageError] = DataLoader(
        _Loaded(images),
        batch_sampler=rank_indices(config, rank, images.samples),
        collate_fn=_as_it_is,  # type: ignore[arg-type]  # __getitems__ makes whole batches
        num_workers=config.num_workers,
        # a fork after MPI or Horovod has started threads is undefined
        multiprocessing_context="spawn" if config.num_workers else None,
        worker_init_fn=partial(end_with, os.getpid()),
        persistent_workers=config.num_workers > 0,
        pin_memory=config.device == "cuda",  # or the copy to the device would hold the loop up
    )
    # loading processes start here, not in the first step
    loaded_batches = _without_mistakes(iter(loader))
    if config.preprocessing != "outside":
        return loaded_batches
    prepared = []
    for batch in islice(loaded_batches, config.steps):
        prepared.append(batch)
        on_batch()
    return iter(prepared)


def _as_it_is(batch: Batch | UsageError) -> Batch | UsageError:
    return batch


def _without_mistakes(loaded: Iterator[Batch | UsageError]) -> Iterator[Batch]:
    for batch in loaded:
        if isinstance(batch, UsageError):
            raise batch
        yield batch


def rank_indices(config: RunConfig, rank: int, samples: int | None) -> Iterator[Indices]:
    """Yield the sample indices of each of this rank's batches, without end.

    Indices depend on the seed, not on the backend. With sharding=fixed a rank keeps its part of
    the samples for all epochs. Parts are disjoint, and their sizes differ by at most one.
    """
    share, per_epoch = config.samples_per_rank, (samples or 0) // config.samples_per_step
    if config.sharding == "fixed":
        assert samples is not None, "the rules refuse fixed shards of an endless set"
        # at random: folders come sorted, and a rank with some classes alone would train another
        order = np.random.default_rng([config.seed, 0, 0, 1]).permutation(samples)
        part = order[rank :: config.world_size]
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
    """Yield the sample indices of each step, for all ranks together, without end.

    An epoch is a permutation drawn from (seed, epoch); a rest that fills no step is dropped. If
    `samples` is None, the set is endless and is taken in order.
    """
    for epoch in count():
        order = None
        if samples is not None:
            order = np.random.default_rng([seed, epoch]).permutation(samples)
        for step in count() if samples is None else range(samples // samples_per_step):
            window = np.arange(step * samples_per_step, (step + 1) * samples_per_step)
            yield window if order is None else order[window]


def describe(config: RunConfig, images: Images) -> dict[str, int | str | bool | None]:
    """Return facts of the data for the run log, such as the samples that each epoch drops."""
    samples, step, sharding = images.samples, config.samples_per_step, _SHARDING[config.sharding]
    sharding = "endless: no sample is seen twice" if samples is None else sharding
    if config.preprocessing == "resident":
        sharding = "the same samples in every step, others on each rank"
    augmentation = "the data set's own" if ":" in config.dataset else "none"
    if config.dataset in ON_DISK:
        augmentation = ON_DISK[config.dataset].augmentation
    return {
        "samples": samples,
        "steps_per_epoch": None if samples is None else samples // step,
        "dropped_per_epoch": 0 if samples is None else samples % step,
        "augmentation": augmentation,
        "sharding": sharding,
        "preprocessing": _PREPROCESSING[config.preprocessing],
        # the files' checksums are those that torchvision knows
        **({"files_as_published": True} if config.dataset in PUBLISHED else {}),
    }
