"""Inception with batch normalisation for 28 x 28 images, as MXNet's CIFAR-10 example trains it.

Source: github.com/apache/mxnet, example/image-classification, symbol_inception-bn-28-small.py.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from bench.config import RunConfig
from bench.models.inception_bn import convolution, head
from bench.models.layers import Joined, scaled

# channels: 1x1, 3x3; one number: 3x3 beside pooling, which halve the image
_BLOCKS: tuple[tuple[int, ...], ...] = (
    *((32, 32), (32, 48), (80,)),
    *((112, 48), (96, 64), (80, 80), (48, 96), (96,)),
    *((176, 160), (176, 160)),
)


def inception_bn_28(classes: int, config: RunConfig) -> nn.Module:
    """Make a network for 28 x 28 images: one convolution, ten blocks, one linear layer."""
    of = partial(scaled, width=config.model_width)
    channels = of(96)
    blocks = [convolution(3, channels, 3)]
    for block in _BLOCKS:
        *simple, wide = map(of, block)
        if simple:
            branches = [convolution(channels, simple[0], 1), convolution(channels, wide, 3)]
            channels = simple[0] + wide
        else:
            branches = [convolution(channels, wide, 3, stride=2), nn.MaxPool2d(3, 2, padding=1)]
            channels += wide
        blocks.append(Joined(branches))
    return nn.Sequential(*blocks, *head(channels, classes))
