"""The networks of published examples: ResNet-23, Inception-BN, ResNet-9 and the MLP.

Sources, on github.com: sony/nnabla-examples (distributed/cifar10-100/models.py, resnet23),
apache/mxnet (example/image-classification, symbol_inception-bn{,-28-small}.py),
apple/ml-cifar-10-faster (ResNet-9, after D. Page, "How to train your ResNet") and
jinyangli/pathway2ai (mlp.py, with its larger setting of 4 layers).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.nn.functional import batch_norm

from bench.config import RunConfig

# Inception-BN's channels: 1x1; 1x1 before 3x3, 3x3; 1x1 before two 3x3, both 3x3; after pooling.
# A block without the first and last halves the image
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
_WHITENED = 27  # of ResNet-9's stem: patches of 3 x 3 pixels in three colours
_SPLITS = 16  # of a rank's batch in its batch normalisation
_LEAST = 32  # numbers of a channel in a part: small images would leave one or two
_EPS = 1e-2  # added to the variance of a direction before it is scaled to 1


def _scaled(channels: int, config: RunConfig) -> int:
    """Scale `channels` by --model-width to an even number, at least 2."""
    return max(2, 2 * round(channels * config.model_width / 2))


def mlp(classes: int, config: RunConfig) -> nn.Module:
    """Make a tanh perceptron on grey values, with three hidden layers of 256 * width units."""
    hidden = _scaled(256, config)
    layers: list[nn.Module] = [_Grey()]
    for sizes in itertools.pairwise([config.image_size**2, hidden, hidden, hidden, classes]):
        linear = nn.Linear(*sizes, bias=False)
        nn.init.kaiming_uniform_(linear.weight)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class _Grey(nn.Module):
    """A layer that turns images [n, 3, h, w] into grey values [n, h * w]."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean(1).flatten(1)


def resnet23(classes: int, config: RunConfig) -> nn.Module:
    """Make ResNet-23: a convolution, seven bottlenecks of 64 * width channels, a linear layer."""
    channels = _scaled(64, config)
    blocks: list[nn.Module] = []
    for index in range(7):
        blocks.append(_Bottleneck(channels))
        if index % 2:
            blocks.append(nn.MaxPool2d(2))
    head = _head(channels, classes)
    return nn.Sequential(*_normalised(3, channels, 3), nn.ReLU(), *blocks, *head)


class _Bottleneck(nn.Module):
    """A residual block with half of the channels inside, and ReLU after the sum with its input."""

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


def _head(channels: int, classes: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)


def inception_bn(classes: int, config: RunConfig) -> nn.Module:
    """Make Inception-BN for 224 x 224 images: three convolutions, ten blocks, one linear layer."""
    stem, channels = _scaled(64, config), _scaled(192, config)
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
    """Make Inception-BN for 28 x 28 images: one convolution, ten blocks, one linear layer."""
    channels = _scaled(96, config)
    layers = [_convolution(3, channels, 3)]
    for block in _BLOCKS_28:
        one, three = _widths(block, config)
        beside = _convolution(channels, one, 1) if one else nn.MaxPool2d(3, 2, padding=1)
        wide = _convolution(channels, three, 3, stride=1 if one else 2)
        layers.append(_Joined([beside, wide] if one else [wide, beside]))
        channels = three + (one or channels)
    return nn.Sequential(*layers, *_head(channels, classes))


def _widths(block: Sequence[int], config: RunConfig) -> list[int]:
    return [_scaled(channels, config) if channels else 0 for channels in block]


def _convolution(before: int, after: int, kernel: int, stride: int = 1) -> nn.Module:
    """Make a convolution with bias, a BatchNorm whose scale stays 1, and a ReLU, as MXNet does."""
    norm = nn.BatchNorm2d(after)
    norm.weight.requires_grad_(False)
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding=kernel // 2), norm, nn.ReLU()
    )


class _Joined(nn.Module):
    """Several branches of one input, whose output channels are concatenated."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class ResNet9(nn.Module):
    """A whitening stem, four stages of 64 to 512 channels times the width, and a linear layer
    without bias. Two of the stages end with a residual block.
    """

    def __init__(self, classes: int, config: RunConfig) -> None:
        super().__init__()
        stem, one, two, three = (_scaled(channels, config) for channels in (64, 128, 256, 512))
        self.whiten = nn.Conv2d(3, _WHITENED, 3, padding=1, bias=False)
        self.whiten.weight.requires_grad_(False)
        self.body = nn.Sequential(
            *_ghost(_WHITENED, stem, 1),
            *(nn.Sequential(*_ghost(stem, one, 3, nn.MaxPool2d(2))), _Residual(one)),
            nn.Sequential(*_ghost(one, two, 3, nn.MaxPool2d(2))),
            *(nn.Sequential(*_ghost(two, three, 3, nn.MaxPool2d(2))), _Residual(three)),
            *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(three, classes, bias=False)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(self.whiten(images)) / 16  # type: ignore[no-any-return]

    @torch.no_grad()
    def prepare_on_images(self, batches: Iterable[torch.Tensor]) -> None:
        """Set the stem, which is not trained, to whiten the 3 x 3 patches of images [n, 3, h, w].

        The filters are principal directions of the patches, divided by their standard deviations
        and sorted by falling variance. An eighth of each image is left out on every side.
        """
        total, patch_count = torch.zeros(_WHITENED, _WHITENED, dtype=torch.float64), 0
        for images in batches:
            edge = images.shape[-1] // 8  # as wide as the padding that a random crop may show
            inner = images[:, :, edge:-edge, edge:-edge]
            patches = inner.unfold(2, 3, 1).unfold(3, 3, 1).transpose(1, 3).reshape(-1, _WHITENED)
            total += patches.double().T @ patches.double()
            patch_count += len(patches)
        variances, directions = torch.linalg.eigh(total / (patch_count - 1))
        filters = directions.T / (variances + _EPS).sqrt()[:, None]
        self.whiten.weight.copy_(filters.flip(0).reshape(_WHITENED, 3, 3, 3))


resnet9 = ResNet9


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_ghost(channels, channels, 3), *_ghost(channels, channels, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


def _ghost(before: int, after: int, kernel: int, *pool: nn.Module) -> list[nn.Module]:
    convolution, _ = _normalised(before, after, kernel)
    return [convolution, *pool, _GhostBatchNorm(after), nn.CELU(0.3)]


class _GhostBatchNorm(nn.BatchNorm2d):
    """Batch normalisation of a batch in 16 parts, each by itself (Hoffer et al. 2017). Parts are
    fewer and larger if the batch is small or not a multiple of 16. The scale stays 1.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        n, channels, *edges = x.shape
        parts = math.gcd(n, _SPLITS)
        while parts > 1 and x.numel() < _LEAST * parts * channels:
            parts //= 2
        # a part's channels beside the others': one call, in which each has statistics of its own
        mean, variance = self.running_mean.repeat(parts), self.running_var.repeat(parts)
        scale, shift = self.weight.repeat(parts), self.bias.repeat(parts)
        split = x.reshape(n // parts, parts * channels, *edges)
        out = batch_norm(split, mean, variance, scale, shift, True, self.momentum or 0.0, self.eps)
        # every part's running values start equal, so their mean is the running value of the means
        self.running_mean.copy_(mean.view(parts, channels).mean(0))
        self.running_var.copy_(variance.view(parts, channels).mean(0))
        return out.reshape(x.shape)
