"""Inception with batch normalisation (Ioffe & Szegedy 2015), as MXNet's examples train it.

Source: github.com/apache/mxnet, example/image-classification, symbol_inception-bn.py for 224 x 224
pixels and symbol_inception-bn-28-small.py for 28 x 28. As there, convolutions keep their bias, and
BatchNorm's scale stays 1.
"""

from __future__ import annotations

from functools import partial

from torch import nn

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
# channels: 1x1, 3x3; one number: 3x3 beside pooling, which halve the image
_BLOCKS_28: tuple[tuple[int, ...], ...] = (
    *((32, 32), (32, 48), (80,)),
    *((112, 48), (96, 64), (80, 80), (48, 96), (96,)),
    *((176, 160), (176, 160)),
)


def inception_bn(classes: int, width: float) -> nn.Module:
    """For 224 x 224 images: two convolutions, ten blocks, one linear layer."""
    of = partial(scaled, width=width)
    stem = [
        *(_convolution(3, of(64), 7, stride=2), nn.MaxPool2d(3, 2, padding=1)),
        *(_convolution(of(64), of(64), 1), _convolution(of(64), of(192), 3)),
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
    return nn.Sequential(*stem, *blocks, *_head(channels, classes))


def inception_bn_28(classes: int, width: float) -> nn.Module:
    """For 28 x 28 images: one convolution, ten blocks, one linear layer."""
    of = partial(scaled, width=width)
    channels = of(96)
    blocks = [_convolution(3, channels, 3)]
    for block in _BLOCKS_28:
        *simple, wide = map(of, block)
        if simple:
            branches = [_convolution(channels, simple[0], 1), _convolution(channels, wide, 3)]
            channels = simple[0] + wide
        else:
            branches = [_convolution(channels, wide, 3, stride=2), nn.MaxPool2d(3, 2, padding=1)]
            channels += wide
        blocks.append(Joined(branches))
    return nn.Sequential(*blocks, *_head(channels, classes))


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
    """Four branches at the size of the input, and the channels after them."""
    pool = nn.MaxPool2d(3, 1, padding=1) if largest else nn.AvgPool2d(3, 1, padding=1)
    branches = [
        _convolution(before, one, 1),
        nn.Sequential(_convolution(before, reduced, 1), _convolution(reduced, three, 3)),
        _double(before, reduced2, double, stride=1),
        nn.Sequential(pool, _convolution(before, pooled, 1)),
    ]
    return Joined(branches), one + three + double + pooled


def _halving(
    before: int, reduced: int, three: int, reduced2: int, double: int
) -> tuple[nn.Module, int]:
    """Three branches that halve the image, and the channels after them."""
    branches = [
        nn.Sequential(_convolution(before, reduced, 1), _convolution(reduced, three, 3, stride=2)),
        _double(before, reduced2, double, stride=2),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    return Joined(branches), three + double + before


def _double(before: int, reduced: int, after: int, stride: int) -> nn.Module:
    return nn.Sequential(
        _convolution(before, reduced, 1),
        _convolution(reduced, after, 3),
        _convolution(after, after, 3, stride=stride),
    )


def _convolution(before: int, after: int, kernel: int, stride: int = 1) -> nn.Module:
    norm = nn.BatchNorm2d(after)
    norm.weight.requires_grad_(False)
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding=kernel // 2), norm, nn.ReLU()
    )


def _head(channels: int, classes: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
