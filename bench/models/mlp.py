"""A perceptron of four layers with tanh: the network of New York University's exercises.

Source: github.com/jinyangli/pathway2ai, mlp.py, with its larger setting of 4 layers.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

from bench.config import RunConfig
from bench.models.layers import scaled


def mlp(classes: int, config: RunConfig) -> nn.Module:
    """Make a network for grey values: three hidden layers of 256 times the width, no biases.

    Generated data of 1,024 features are images of 32 x 32 pixels.
    """
    hidden = scaled(256, config.model_width)
    sizes = [config.image_size**2, hidden, hidden, hidden, classes]
    layers: list[nn.Module] = [_Grey()]
    for before, after in itertools.pairwise(sizes):
        linear = nn.Linear(before, after, bias=False)
        nn.init.kaiming_uniform_(linear.weight)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class _Grey(nn.Module):
    """Images [n, 3, h, w] to grey values [n, h * w]."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean(1).flatten(1)
