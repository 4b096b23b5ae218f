"""What a data set is to the loop: how many classes and samples, and batches by sample index."""

from __future__ import annotations

from typing import Protocol

import torch

from bench.config import RunConfig

Batch = tuple[torch.Tensor, torch.Tensor]


class Indices(list[int]):
    """Sample indices of one batch that know the epoch they are drawn in: what augmentation is
    seeded with, besides the seed.

    They travel to the loading processes, which keep no count of their own, so that any number of
    them gives the same images.
    """

    def __init__(self, indices: list[int], epoch: int = 0) -> None:
        super().__init__(indices)
        self.epoch = epoch


class Images(Protocol):
    """A data set: `classes`, `samples` (None if endless) and batches by sample index."""

    @property
    def classes(self) -> int: ...

    @property
    def samples(self) -> int | None: ...

    def __getitems__(self, indices: list[int]) -> Batch:
        """Images [len(indices), 3, size, size] and int64 labels [len(indices)]; a plain list is of
        epoch 0.
        """
        ...


def epoch_of(indices: list[int]) -> int:
    """The epoch in which `indices` are drawn."""
    return indices.epoch if isinstance(indices, Indices) else 0


def image_dtype(config: RunConfig) -> torch.dtype:
    """Type of the images as loaded: whatever is narrower than float32 is made from it by the loop,
    on the device.
    """
    return torch.float64 if config.precision == "float64" else torch.float32
