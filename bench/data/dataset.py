"""What a data set is to the loop: how many classes and samples, and batches by sample index."""

from __future__ import annotations

from typing import Protocol

import torch

from bench.config import RunConfig

Batch = tuple[torch.Tensor, torch.Tensor]


class Indices(list[int]):
    """Sample indices of a batch and their epoch, which seeds augmentation in loading processes."""

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
        """Images [n, 3, size, size] and int64 labels [n]; a plain list is of epoch 0."""
        ...


def epoch_of(indices: list[int]) -> int:
    """The epoch in which `indices` are drawn."""
    return indices.epoch if isinstance(indices, Indices) else 0


def image_dtype(config: RunConfig) -> torch.dtype:
    """Type of the images as loaded; the loop makes narrower ones from float32, on the device."""
    return torch.float64 if config.precision == "float64" else torch.float32
