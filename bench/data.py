"""What it is trained on: which sample goes to which rank at which step, and the samples themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from bench.config import RunConfig

Batch = tuple[torch.Tensor, torch.Tensor]


class Images(Protocol):
    """A data set: `classes`, `samples` (None if endless) and batches by sample index."""

    @property
    def classes(self) -> int: ...

    @property
    def samples(self) -> int | None: ...

    def __getitems__(self, indices: list[int]) -> Batch:
        """Images [len(indices), 3, size, size] and int64 labels [len(indices)]."""
        ...


def _dtype(config: RunConfig) -> str:
    return "float64" if config.precision == "float64" else "float32"


class Synthetic(Dataset[Batch]):
    """Endless random images: sample i is a function of the seed and i alone, whatever the number of ranks."""

    classes = 1000
    samples = None

    def __init__(self, config: RunConfig) -> None:
        self._seed = config.seed
        self._shape = (3, config.image_size, config.image_size)
        self._dtype = np.dtype(_dtype(config))

    def __getitems__(self, indices: list[int]) -> Batch:
        images = np.empty((len(indices), *self._shape), self._dtype)
        labels = np.empty(len(indices), np.int64)
        for place, index in enumerate(indices):
            random = np.random.Generator(np.random.Philox(key=np.array([self._seed, index], np.uint64)))
            random.standard_normal(out=images[place], dtype=self._dtype.type)
            labels[place] = random.integers(self.classes)
        return torch.from_numpy(images), torch.from_numpy(labels)


class Digits(Dataset[Batch]):
    """scikit-learn's 1,797 handwritten digits (UCI Optical Recognition test set, 8 x 8 grey), enlarged, three channels."""

    classes = 10

    def __init__(self, config: RunConfig) -> None:
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        grey = torch.from_numpy((pixels - pixels.mean()) / pixels.std()).to(getattr(torch, _dtype(config)))
        scale = config.image_size // 8
        enlarged = grey.reshape(-1, 1, 8, 8).repeat_interleave(scale, 2).repeat_interleave(scale, 3)
        self._images = enlarged.expand(-1, 3, -1, -1)  # a view: the three channels share their memory
        self._labels = torch.from_numpy(labels)
        self.samples = len(self._labels)

    def __getitems__(self, indices: list[int]) -> Batch:
        chosen = torch.tensor(indices)
        return self._images[chosen].contiguous(), self._labels[chosen]


def load_images(config: RunConfig) -> Images:
    """The data set of `config`."""
    return Synthetic(config) if config.dataset == "synthetic" else Digits(config)


def step_indices(samples: int | None, samples_per_step: int, seed: int) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """Sample indices of each step's global batch, for ever; the same whatever the number of ranks.

    Epochs are permutations from (seed, epoch); the remainder that does not fill a step is dropped, so each sample is used
    at most once per epoch. An endless set is taken in order.
    """
    steps_per_epoch = None if samples is None else samples // samples_per_step
    epoch = 0
    while True:
        order = None if samples is None else np.random.default_rng([seed, epoch]).permutation(samples)
        step = 0
        while steps_per_epoch is None or step < steps_per_epoch:
            window = np.arange(step * samples_per_step, (step + 1) * samples_per_step)
            yield window if order is None else order[window]
            step += 1
        epoch += 1


class _RankSteps(Sampler[list[int]]):
    """This rank's contiguous shard of every step's global batch."""

    def __init__(self, config: RunConfig, rank: int, samples: int | None) -> None:
        self._config, self._rank, self._samples = config, rank, samples

    def __iter__(self) -> Iterator[list[int]]:
        share = self._config.samples_per_rank
        start = self._rank * share
        for indices in step_indices(self._samples, self._config.samples_per_step, self._config.seed):
            yield indices[start : start + share].tolist()


def batches(config: RunConfig, rank: int, images: Images) -> Iterator[Batch]:
    """This rank's batches, for ever: the union over ranks is the step's global batch."""
    loader: DataLoader[Batch] = DataLoader(
        images,  # type: ignore[arg-type]  # __getitems__ makes whole batches
        batch_sampler=_RankSteps(config, rank, images.samples),
        collate_fn=_as_it_is,  # type: ignore[arg-type]
        num_workers=config.num_workers,
        # fork after MPI or Horovod has started threads is undefined; spawn for every backend alike
        multiprocessing_context="spawn" if config.num_workers else None,
        persistent_workers=config.num_workers > 0,
    )
    return iter(loader)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def describe(config: RunConfig, images: Images) -> dict[str, int | None]:
    """What the run log says of the data: the remainder dropped in each epoch included."""
    if images.samples is None:
        return {"samples": None, "steps_per_epoch": None, "dropped_per_epoch": 0}
    return {
        "samples": images.samples,
        "steps_per_epoch": images.samples // config.samples_per_step,
        "dropped_per_epoch": images.samples % config.samples_per_step,
    }
