"""Crops, flips and normalisation of each data set: a function of seed, epoch and sample alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from bench.config import ON_DISK, RunConfig
from bench.config.fields import OnDisk

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

PADDING = 4  # pixels before the random crop of a 32 x 32 image (He et al. 2016, section 4.2)
_KEY = 0x61756721  # keeps these numbers apart from those that order the samples


def normalise(pixels: torch.Tensor, dataset: OnDisk, dtype: torch.dtype) -> torch.Tensor:
    """Scale uint8 [n, 3, h, w] to mean 0 and deviation 1 in each channel."""
    mean_and_std = torch.tensor([dataset.mean, dataset.std], dtype=dtype).reshape(2, 3, 1, 1) * 255
    return pixels.to(dtype).sub_(mean_and_std[0]).div_(mean_and_std[1])


def in_words(config: RunConfig) -> str:
    """Describe the augmentation in words, for the run log."""
    if ":" in config.dataset:
        return "the data set's own"
    if config.dataset not in ON_DISK:
        return "none"
    if config.dataset == "imagefolder":
        return "random resized crop, horizontal flip"
    flip = ", horizontal flip" if ON_DISK[config.dataset].flips else ""
    return f"random crop after {PADDING} pixels of padding{flip}"


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Draw the seed of the random numbers of one sample in one epoch."""
    return int(np.random.default_rng([_KEY, seed, epoch, 1 + index]).integers(2**63))


class EpochCrops:
    """Crop position and mirroring of each sample of an epoch: a table that a batch looks up."""

    def __init__(self, seed: int, samples: int, flips: bool) -> None:
        self._seed, self._samples, self._flips = seed, samples, flips
        self._epoch, self._table = -1, np.empty((0, 3), np.uint8)

    def rows(self, epoch: int, indices: list[int]) -> Pixels:
        """Draw [n, 3], a row for each sample: first row and column of the crop, 1 if mirrored."""
        if epoch != self._epoch:
            random = np.random.default_rng([_KEY, self._seed, epoch])
            ends = [2 * PADDING + 1, 2 * PADDING + 1, 2 if self._flips else 1]
            self._table = random.integers(ends, size=(self._samples, 3), dtype=np.uint8)
            self._epoch = epoch
        return self._table[indices]


def crop_and_flip(pixels: Pixels, rows: Pixels) -> Pixels:
    """Pad each of [n, 3, h, w] with black, then crop and mirror it as its row says."""
    height, width = pixels.shape[2:]
    padded = np.pad(pixels, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    # all crops, none copied yet
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    down, right, mirrored = rows.T
    cropped: Pixels = windows[np.arange(len(pixels)), :, down, right]
    mirror = mirrored.astype(bool)
    cropped[mirror] = cropped[mirror, :, :, ::-1]
    return cropped


def resize(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resize [n, 3, h, w] to [n, 3, size, size]: bilinear, antialiased when it shrinks."""
    if images.shape[2:] == (size, size):
        return images
    return interpolate(images, (size, size), mode="bilinear", antialias=True, align_corners=False)
