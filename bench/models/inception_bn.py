"""Inception with batch normalisation (Ioffe & Szegedy 2015), as MXNet's examples train it.

Source: github.com/apache/mxnet, example/image-classification, symbol_inception-bn.py. As
there, convolutions keep their bias, and BatchNorm's scale stays 1.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from bench.config import RunConfig
from bench.models.layers import Joined, scaled

# channels: 1x1; 1x1 before 3x3, 3x3; 1x1 before two 3x3, both 3x3; after pooling
_WIDE = 6
# the same without the first and last: every branch halves the image
_BLOCKS_224 = (
    *((64, 64, 64, 64, 96, 32), (64, 64, 96, 64, 96, 64), (128, 160, 64, 96)),
    *((224, 64, 96, 96, 128, 128), (192, 96, 128, 96, 128, 128)),
    *((160, 128, 160, 128, 160, 128), (96, 128, 192, 160, 192, 128), (128, 192, 192, 256)),
    *((352, 192, 320, 160, 224, 128), (352, 192, 320, 192, 224, 128)),
)


def inception_bn(classes: int, config: RunConfig) -> nn.Module:
    """Make a network for 224 x 224 images: two convolutions, ten blocks, one linear layer."""
    of = partial(scaled, width=config.model_width)
    stem = [
        *(convolution(3, of(64), 7, stride=2), nn.MaxPool2d(3, 2, padding=1)),
        *(convolution(of(64), of(64), 1), convolution(of(64), of(192), 3)),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    channels, blocks = of(192), []
    for index, block in enumerate(_BLOCKS_224):
        numbers = list(map(of, block))
        if len(block) == _WIDE:  # its pooling is of means, but for the last block
            largest = index == len(_BLOCKS_224) - 1
            module, channels = _wide(channels, *numbers, largest=largest)
        else:
            module, channels = _halving(channels, *numbers)
        blocks.append(module)
    return nn.Sequential(*stem, *blocks, *head(channels, classes))


def _wide(
    before: int,
    one: int,
    reduced: int,
    three: int,
    reduced2: int,
    double: int,
    pooled: int,
    *,
    largest: bool,
) -> tuple[nn.Module, int]:
    """Make four branches at the size of the input, and count the channels after them."""
    pool = nn.MaxPool2d(3, 1, padding=1) if largest else nn.AvgPool2d(3, 1, padding=1)
    branches = [
        convolution(before, one, 1),
        nn.Sequential(convolution(before, reduced, 1), convolution(reduced, three, 3)),
        _double(before, reduced2, double, stride=1),
        nn.Sequential(pool, convolution(before, pooled, 1)),
    ]
    return Joined(branches), one + three + double + pooled


def _halving(
    before: int, reduced: int, three: int, reduced2: int, double: int
) -> tuple[nn.Module, int]:
    """Make three branches that halve the image, and count the channels after them."""
    branches = [
        nn.Sequential(convolution(before, reduced, 1), convolution(reduced, three, 3, stride=2)),
        _double(before, reduced2, double, stride=2),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    return Joined(branches), three + double + before


def _double(before: int, reduced: int, after: int, stride: int) -> nn.Module:
    return nn.Sequential(
        convolution(before, reduced, 1),
        convolution(reduced, after, 3),
        convolution(after, after, 3, stride=stride),
    )


def convolution(before: int, after: int, kernel: int, stride: int = 1) -> nn.Module:
    """Chain a convolution to `after` channels, BatchNorm and ReLU."""
    norm = nn.BatchNorm2d(after)
    norm.weight.requires_grad_(False)
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding=kernel // 2), norm, nn.ReLU()
    )


def head(channels: int, classes: int) -> tuple[nn.Module, ...]:
    """Make the layers that score the classes from the means of `channels`."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
