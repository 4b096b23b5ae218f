"""Layers that several of the project's own networks share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def scaled(channels: int, width: float) -> int:
    """Scale `channels` by `width` to an even number, at least 2; width 1 keeps even `channels`."""
    return max(2, 2 * round(channels * width / 2))


class Joined(nn.Module):
    """Several branches of one input, their channels one behind the other."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)
