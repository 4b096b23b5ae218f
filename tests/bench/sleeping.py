"""A model whose forward pass takes a known time that other users of the machine do not change."""

from __future__ import annotations

import time

import torch
from torch import nn

from tests.bench.tiny import plain

FORWARD_S = 0.2


class _Sleeping(nn.Module):
    """Sleeps as long as an accelerator would compute; its gradients are real."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inner = plain(classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARD_S)
        scores: torch.Tensor = self.inner(images)
        return scores


def model(classes: int) -> nn.Module:
    return _Sleeping(classes)
