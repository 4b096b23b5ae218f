"""A small model that waits when a test of the cluster wants it: package.module:factory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn

from tests.bench.tiny import normalised

HOLD = "CLUSTER_TEST_HOLD"  # names a file; while it is there, it waits


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


def waits(classes: int) -> nn.Module:
    return _Waits(classes)
