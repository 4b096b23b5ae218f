"""ResNet-23, the network of NNabla's example of data-parallel training, for 32 x 32 images.

Source: github.com/sony/nnabla-examples, distributed/cifar10-100/models.py, `resnet23_prediction`.
"""

from __future__ import annotations

import torch
from torch import nn

from bench.config import RunConfig
from bench.models.layers import scaled


def resnet23(classes: int, config: RunConfig) -> nn.Module:
    """Chain a convolution, seven bottlenecks of 64 channels times the width and a linear layer."""
    channels = scaled(64, config.model_width)
    blocks: list[nn.Module] = []
    for index in range(7):
        blocks.append(_Bottleneck(channels))
        if index % 2:
            blocks.append(nn.MaxPool2d(2))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    return nn.Sequential(*_normalised(3, channels, 3), nn.ReLU(), *blocks, *head)


class _Bottleneck(nn.Module):
    """Half of the channels inside; the sum with the input is rectified."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            *(*_normalised(channels, half, 1), nn.ReLU()),
            *(*_normalised(half, half, 3), nn.ReLU()),
            *_normalised(half, channels, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + x)


def _normalised(before: int, after: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, kernel, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after)]
