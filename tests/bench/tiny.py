"""Small models for tests, reached through the user's own door: package.module:factory."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import nn


def plain(classes: int) -> nn.Module:
    """Build convolutions, one used twice, no BatchNorm: averaged shards equal the joined batch."""
    shared = nn.Conv2d(16, 16, 3, padding=1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        shared,
        nn.ReLU(),
        shared,
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def normalised(classes: int) -> nn.Module:
    """Build convolutions with BatchNorm: statistics per rank, buffers to keep in step."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        # a 1 x 1 kernel is contiguous in every layout, with other strides
        nn.Conv2d(8, 8, 1, bias=False),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


class _Stops(nn.Linear):
    """A model that meets Ctrl-C in its tenth forward pass, and stays there until it is ended."""

    calls = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 10:
            signal.raise_signal(signal.SIGINT)
            time.sleep(60)  # another thread ends the process, some steps later if this went on
        return super().forward(images.flatten(1))


def stops(classes: int) -> nn.Module:
    return _Stops(192, classes)


def idle(classes: int) -> nn.Module:
    return nn.Flatten()


class _Sometimes(nn.Module):
    """A layer that rank 1 alone uses, and one that nobody does; weight decay would move it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(3 * 8 * 8, 16)
        self.sometimes, self.idle = nn.Linear(16, 16), nn.Linear(16, 16)
        self.last = nn.Linear(16, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(images.flatten(1)))
        x = self.sometimes(x) if os.environ["OMPI_COMM_WORLD_RANK"] == "1" else x
        scores: torch.Tensor = self.last(x)
        return scores


def sometimes(classes: int) -> nn.Module:
    return _Sometimes(classes)


def with_a_frozen_layer(classes: int) -> nn.Module:
    """Build a model with two layers of one size: rank 1 freezes the first, rank 0 the second."""
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(192, 192), nn.Linear(192, 192), nn.Linear(192, classes)
    )
    model[1 + (os.environ["OMPI_COMM_WORLD_RANK"] == "0")].requires_grad_(False)
    return model


class _FallsOut(nn.Module):
    """A layer that no rank uses any more from the sixth step on."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(192, 16), nn.Linear(16, classes)
        self.fades, self.calls = nn.Linear(16, 16), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = torch.relu(self.first(images.flatten(1)))
        x = self.fades(x) if self.calls <= 6 else x  # one call was for the check of parity
        scores: torch.Tensor = self.last(x)
        return scores


def falls_out(classes: int) -> nn.Module:
    return _FallsOut(classes)
