"""Data sets of one's own for tests, reached through the user's door: package.module:factory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from bench.config import RunConfig


class Ramp(Dataset[tuple[torch.Tensor, int]]):
    """Sample i is filled with i, plus a random number from torch."""

    def __init__(self, config: RunConfig, samples: int = 12, **wrong: Any) -> None:
        self.classes: Any = ["even", "odd"]
        self._size, self._samples = config.image_size, samples
        self.__dict__ |= wrong

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, self._size, self._size), float(index)) + torch.rand(()) / 2, index % 2


def ramp(config: RunConfig) -> Ramp:
    return Ramp(config)


def judged(config: RunConfig) -> Ramp:
    return Ramp(config, held_out=Ramp(config, samples=5))


def judged_by_others(config: RunConfig) -> Ramp:
    return Ramp(config, held_out=Ramp(config, samples=5, classes=3))


def transformed(config: RunConfig) -> object:
    """Make a ramp with an object of torchvision's, which a loading process must take over."""
    from torchvision.transforms import v2

    return Ramp(config, transform=v2.RandomHorizontalFlip())
