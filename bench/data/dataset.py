"""The interface of data sets, the sets that need no folder, and the import of torchvision."""

from __future__ import annotations

import importlib
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from bench.config import RunConfig, UsageError

Batch = tuple[torch.Tensor, torch.Tensor]
_APART = 9.0  # deviations between two centres: close enough that some samples are taken for others
KEY = 0x61756721  # keeps the numbers of augmentation apart from those that order the samples
_stubs: list[Any] = []  # operators live as long as the Library object that declared them
_HELD_OUT = 5  # one of so many digits, the same in every run: they come without a test part


class Indices(list[int]):
    """Sample indices of a batch and their epoch, which seeds augmentation in loading processes."""

    def __init__(self, indices: list[int], epoch: int = 0) -> None:
        super().__init__(indices)
        self.epoch = epoch


class Images(Protocol):
    """A data set: its numbers of `classes` and `samples` (None if endless), and its batches."""

    @property
    def classes(self) -> int: ...
    @property
    def samples(self) -> int | None: ...

    def __getitems__(self, indices: list[int]) -> Batch:
        """Load images [n, 3, size, size] and int64 labels [n]; a plain list means epoch 0."""
        ...


def image_dtype(config: RunConfig) -> torch.dtype:
    """Return the type of loaded images, float64 or float32; the loop may make them bfloat16."""
    return torch.float64 if config.precision == "float64" else torch.float32


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Draw the seed of the random numbers of one sample in one epoch."""
    return int(np.random.default_rng([KEY, seed, epoch, 1 + index]).integers(2**63))


def import_torchvision() -> ModuleType:
    """Import torchvision. Raises UsageError if it is not installed.

    PyPI's wheel is linked against CUDA, so its extension does not load beside a CPU build of torch.
    Then the import would fail for want of two operators, and this function declares them.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise UsageError("torchvision is not installed; run make setup")
    if not _stubs:
        try:
            for path in (extensions := [*Path(spec.origin).parent.glob("_C*.so")]):
                torch.ops.load_library(str(path))
        except OSError:
            extensions = []
        if not extensions:
            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                words = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                library.define(f"{operator}{words}")
            _stubs.append(library)
    return importlib.import_module("torchvision")


class Synthetic(Dataset[Batch]):
    """Endless random images: sample i is a function of the seed and i alone."""

    classes = 1000
    samples = None

    def __init__(self, config: RunConfig) -> None:
        self._seed = config.seed
        self._shape = (3, config.image_size, config.image_size)
        self._dtype: Any = np.float64 if image_dtype(config) == torch.float64 else np.float32

    def __getitems__(self, indices: list[int]) -> Batch:
        images = np.empty((len(indices), *self._shape), self._dtype)
        labels = np.empty(len(indices), np.int64)
        for place, index in enumerate(indices):
            key = np.array([self._seed, index], np.uint64)
            random = np.random.Generator(np.random.Philox(key=key))
            random.standard_normal(out=images[place], dtype=self._dtype)
            labels[place] = random.integers(self.classes)
        return torch.from_numpy(images), torch.from_numpy(labels)


class Generated(Dataset[Batch]):
    """Learnable grey images of any size, in 32 classes: each is its class's centre plus noise.

    10,000 are for training, 2,000 are held out. Sample i is a function of the seed and i alone.
    """

    classes = 32

    def __init__(self, config: RunConfig, held_out: bool = False) -> None:
        self.samples, self._first = (2_000, 10_000) if held_out else (10_000, 0)
        self._seed, self._shape = config.seed, (config.image_size, config.image_size)
        self._dtype = image_dtype(config)
        centres = np.random.default_rng([config.seed, 1]).standard_normal((32, *self._shape))
        # as far from one another, in deviations of a sample, whatever the size
        self._centres = centres * (_APART / math.sqrt(2 * config.image_size**2))

    def __getitems__(self, indices: list[int]) -> Batch:
        labels = torch.tensor([(self._first + index) % self.classes for index in indices])
        grey = np.stack([self._centres[label] for label in labels.tolist()])
        for place, index in enumerate(indices):
            random = np.random.default_rng([self._seed, 2, self._first + index])
            grey[place] += random.standard_normal(self._shape)
        images = torch.from_numpy(grey).to(self._dtype)
        return images.unsqueeze(1).expand(-1, 3, -1, -1).contiguous(), labels


class Blank(Dataset[Batch]):
    """Endless images of one pixel, for emulated passes, which read no pixel."""

    samples = None

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def __getitems__(self, indices: list[int]) -> Batch:
        return torch.zeros(len(indices), 3, 1, 1), torch.zeros(len(indices), dtype=torch.int64)


class Digits(Dataset[Batch]):
    """scikit-learn's 1,797 handwritten digits, 8 x 8 grey, enlarged (UCI's Optdigits, test set)."""

    classes = 10

    def __init__(self, config: RunConfig, held_out: bool = False) -> None:
        spec = importlib.util.find_spec("sklearn")
        if spec is None or spec.origin is None:
            missing = "--dataset digits needs scikit-learn, which is missing"
            raise UsageError(f"{missing}; run: make setup")
        # from its own file: to import it costs every rank as much time as to import torch
        file = Path(spec.origin).parent / "datasets/data/digits.csv.gz"
        table = np.loadtxt(file, delimiter=",")
        trained = chosen = np.arange(len(table))
        if config.epochs is not None:  # else nothing is held out
            order = np.random.default_rng(0).permutation(len(table))
            judged, trained = np.split(order, [len(table) // _HELD_OUT])
            chosen = judged if held_out else trained
        pixels = table[:, :-1]
        mean, deviation = pixels[trained].mean(), pixels[trained].std()
        grey = torch.from_numpy((pixels[chosen] - mean) / deviation).to(image_dtype(config))
        scale = config.image_size // 8
        enlarged = grey.reshape(-1, 1, 8, 8).repeat_interleave(scale, 2).repeat_interleave(scale, 3)
        self._images = enlarged.expand(-1, 3, -1, -1)  # the three channels share their memory
        self._labels = torch.from_numpy(table[chosen, -1].astype(int))
        self.samples = len(self._labels)

    def __getitems__(self, indices: list[int]) -> Batch:
        chosen = torch.tensor(indices)
        return self._images[chosen].contiguous(), self._labels[chosen]
