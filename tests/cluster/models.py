"""Small models that go wrong, or wait, when a test of the cluster wants it: package.module:factory,
as a user's own.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn

from tests.bench.tiny import normalised

HOLD = "CLUSTER_TEST_HOLD"  # names a file; while it is there, models that wait do
_MIB = 2**20


class _Waits(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inner = normalised(classes)
        self.hold = Path(os.environ[HOLD])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        while self.hold.exists():
            time.sleep(0.05)
        result: torch.Tensor = self.inner(images)
        return result


class _Greedy(nn.Module):
    """Rank 1 takes another 500 MiB in each forward pass and writes into it: the limit is passed
    long before the last step.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inner = normalised(classes)
        self.taken: list[bytearray] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if os.environ["SLURM_PROCID"] == "1":
            self.taken.append(bytearray(b"x") * (500 * _MIB))
            time.sleep(0.5)
        result: torch.Tensor = self.inner(images)
        return result


def waits(classes: int) -> nn.Module:
    return _Waits(classes)


def greedy(classes: int) -> nn.Module:
    return _Greedy(classes)
