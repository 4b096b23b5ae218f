"""ResNet-9 of DAWNBench's CIFAR-10 entries: a whitening stem, ghost batch norm, CELU.

Source: github.com/apple/ml-cifar-10-faster, after D. Page, "How to train your ResNet".
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.functional import batch_norm

from bench.config import RunConfig
from bench.models.layers import scaled

_WHITENED = 27  # patches of 3 x 3 pixels in three colours
_SPLITS = 16  # of a rank's batch in batch normalisation
_LEAST = 32  # numbers of a channel in a part: small images would leave one or two
_EPS = 1e-2  # added to the variance of a direction before it is scaled to 1


def resnet9(classes: int, config: RunConfig) -> ResNet9:
    """Make four stages of 64 to 512 channels times the width, two of them with a residual, and one
    linear layer without bias.
    """
    return ResNet9(classes, config.model_width)


class ResNet9(nn.Module):
    """Four stages of 64 to 512 channels times `width`."""

    def __init__(self, classes: int, width: float) -> None:
        super().__init__()
        stem, one, two, three = (scaled(channels, width) for channels in (64, 128, 256, 512))
        self.whiten = nn.Conv2d(3, _WHITENED, 3, padding=1, bias=False)
        self.whiten.weight.requires_grad_(False)
        self.body = nn.Sequential(
            *_block(_WHITENED, stem, 1),
            *(nn.Sequential(*_block(stem, one, 3, nn.MaxPool2d(2))), _Residual(one)),
            nn.Sequential(*_block(one, two, 3, nn.MaxPool2d(2))),
            *(nn.Sequential(*_block(two, three, 3, nn.MaxPool2d(2))), _Residual(three)),
            *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(three, classes, bias=False)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(self.whiten(images)) / 16  # type: ignore[no-any-return]

    @torch.no_grad()
    def prepare_on_images(self, batches: Iterable[torch.Tensor]) -> None:
        """Set the stem, which is not trained, to whiten the 3 x 3 patches of images [n, 3, h, w].

        Its filters are the patches' principal directions over their standard deviations; the
        largest is first. An eighth of the image is left out on each side.
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


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_block(channels, channels, 3), *_block(channels, channels, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


def _block(before: int, after: int, kernel: int, *pool: nn.Module) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, kernel, padding=kernel // 2, bias=False)
    return [convolution, *pool, _GhostBatchNorm(after), nn.CELU(0.3)]


class _GhostBatchNorm(nn.BatchNorm2d):
    """Batch normalisation of each sixteenth of the batch by itself (Hoffer et al. 2017), or of
    larger equal parts where those would be too small; its scale stays 1.
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
