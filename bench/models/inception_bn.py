"""Inception with batch normalisation (Ioffe & Szegedy 2015), as MXNet's examples train it.

Source: github.com/apache/mxnet, example/image-classification, symbol_inception-bn.py and
symbol_inception-bn-28-small.py. As there, convolutions keep their bias, and BatchNorm's scale
stays 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from bench.config import RunConfig
from bench.models.layers import scaled

# channels: 1x1; 1x1 before 3x3, 3x3; 1x1 before two 3x3, both 3x3; after pooling. A block without
# the first and last halves the image
_BLOCKS_224 = (
    *((64, 64, 64, 64, 96, 32), (64, 64, 96, 64, 96, 64), (0, 128, 160, 64, 96, 0)),
    *((224, 64, 96, 96, 128, 128), (192, 96, 128, 96, 128, 128)),
    *((160, 128, 160, 128, 160, 128), (96, 128, 192, 160, 192, 128), (0, 128, 192, 192, 256, 0)),
    *((352, 192, 320, 160, 224, 128), (352, 192, 320, 192, 224, 128)),
)
# channels: 1x1, 3x3; one without the first has pooling instead, and both halve the image
_BLOCKS_28 = (
    *((32, 32), (32, 48), (0, 80), (112, 48), (96, 64), (80, 80), (48, 96), (0, 96)),
    *((176, 160), (176, 160)),
)


def inception_bn(classes: int, config: RunConfig) -> nn.Module:
    """Make a network for 224 x 224 images: two convolutions, ten blocks, one linear layer."""
    stem, channels = scaled(64, config.model_width), scaled(192, config.model_width)
    layers = [*(_convolution(3, stem, 7, stride=2), nn.MaxPool2d(3, 2, padding=1))]
    layers += [_convolution(stem, stem, 1), _convolution(stem, channels, 3)]
    layers += [nn.MaxPool2d(3, 2, padding=1)]
    for block in _BLOCKS_224:
        one, reduced, three, reduced2, double, pooled = _widths(block, config)
        stride = 1 if one else 2
        branches: list[nn.Module] = [_convolution(channels, one, 1)] if one else []
        branches += [
            nn.Sequential(
                _convolution(channels, reduced, 1), _convolution(reduced, three, 3, stride)
            ),
            nn.Sequential(
                _convolution(channels, reduced2, 1),
                _convolution(reduced2, double, 3),
                _convolution(double, double, 3, stride),
            ),
        ]
        if not one:
            branches.append(nn.MaxPool2d(3, 2, padding=1))
        else:  # its pooling is of means, but for the last block
            pool = (nn.MaxPool2d if block is _BLOCKS_224[-1] else nn.AvgPool2d)(3, 1, padding=1)
            branches.append(nn.Sequential(pool, _convolution(channels, pooled, 1)))
        layers.append(_Joined(branches))
        channels = one + three + double + (pooled or channels)
    return nn.Sequential(*layers, *_head(channels, classes))


def inception_bn_28(classes: int, config: RunConfig) -> nn.Module:
    """Make a network for 28 x 28 images: one convolution, ten blocks, one linear layer."""
    channels = scaled(96, config.model_width)
    layers = [_convolution(3, channels, 3)]
    for block in _BLOCKS_28:
        one, three = _widths(block, config)
        beside = _convolution(channels, one, 1) if one else nn.MaxPool2d(3, 2, padding=1)
        wide = _convolution(channels, three, 3, stride=1 if one else 2)
        layers.append(_Joined([beside, wide] if one else [wide, beside]))
        channels = three + (one or channels)
    return nn.Sequential(*layers, *_head(channels, classes))


def _widths(block: Sequence[int], config: RunConfig) -> list[int]:
    return [scaled(channels, config.model_width) if channels else 0 for channels in block]


def _convolution(before: int, after: int, kernel: int, stride: int = 1) -> nn.Module:
    norm = nn.BatchNorm2d(after)
    norm.weight.requires_grad_(False)
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding=kernel // 2), norm, nn.ReLU()
    )


def _head(channels: int, classes: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)


class _Joined(nn.Module):
    """Several branches of one input, their channels one behind the other."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)
