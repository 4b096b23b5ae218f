"""Crops, flips and normalisation of each data set: a function of seed, epoch and sample alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

from bench.config import ON_DISK, RunConfig
from bench.config.datasets import OnDisk

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Random = np.random.Generator

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
    folder = config.dataset == "imagefolder"
    if config.dataset not in ON_DISK or not config.augment:
        return "none: shorter edge resized, centre crop" if folder else "none"
    if folder:
        return "random resized crop, horizontal flip"
    flip = ", horizontal flip" if ON_DISK[config.dataset].flips else ""
    return f"random crop after {PADDING} pixels of padding{flip}"


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


def sample_random(seed: int, epoch: int, index: int) -> Random:
    """Make the generator of the random numbers of one sample in one epoch."""
    return np.random.default_rng([_KEY, seed, epoch, 1 + index])


def random_resized_crop(image: Image.Image, size: int, random: Random) -> Image.Image:
    """Crop 8 to 100 % of the area, aspect 3/4 to 4/3, and mirror half (torchvision's defaults)."""
    part = image.crop(_random_box(*image.size, random))
    part = part.resize((size, size), Image.Resampling.BILINEAR)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else part


def _random_box(width: int, height: int, random: Random) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(random.integers(width - w + 1)), int(random.integers(height - h + 1))
            return left, top, left + w, top + h
    # a strip: its middle, as torchvision does
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def centre_crop(image: Image.Image, size: int) -> Image.Image:
    """Crop the middle square, after resizing to 256/224 of `size` (torchvision's evaluation)."""
    shorter = round(size * 256 / 224)
    width, height = (int(shorter * edge / min(image.size)) for edge in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + size, top + size))
