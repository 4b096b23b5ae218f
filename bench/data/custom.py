"""Batches of a map-style data set, such as one from --dataset package.module:factory."""

from __future__ import annotations

import pickle
from contextlib import suppress
from operator import index as whole_number
from typing import Any

import torch
from torch.utils.data import Dataset

from bench import factory
from bench.config import RunConfig, UsageError
from bench.data.dataset import Batch, image_dtype, import_torchvision, sample_seed
from bench.train.numbers import seeded

# at import, because a loading process must do it before it loads the user's transforms
with suppress(UsageError):
    import_torchvision()


class Own(Dataset[Batch]):
    """Batches of a map-style data set. Raises UsageError if the set or its first sample is unfit.

    Random numbers for sample i are seeded by (seed, epoch, i), so its transforms are reproducible.
    """

    doubt = ""  # what is likely to be wrong with it

    def __init__(self, config: RunConfig, dataset: Any) -> None:
        self._config, self._dataset = config, dataset
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            mistake = f"the factory gave a {type(dataset).__name__}, which has no len() and [i]"
            raise self._error(f"{mistake}; add them")
        classes: Any = getattr(dataset, "classes", None)  # torchvision's data sets have names
        self.names = [*classes] if isinstance(classes, tuple | list) else []
        count = len(self.names) or classes
        if not isinstance(count, int) or count < 1:
            need = f"{type(dataset).__name__} needs `classes`, their number"
            raise self._error(f"{need}; it has {classes!r}")
        self.classes, self.samples = int(count), len(dataset)
        if self.samples:
            self._item(0, 0)

    def __getitems__(self, indices: list[int]) -> Batch:
        epoch = getattr(indices, "epoch", 0)  # a plain list is of the first
        items = [self._item(index, epoch) for index in indices]
        images, labels = zip(*items, strict=True)
        return torch.stack(images).to(image_dtype(self._config)), torch.tensor(labels)

    def held_out(self) -> Own:
        """Return the data set's `held_out`, a test set. Raises UsageError if missing or unfit."""
        dataset: Any = getattr(self._dataset, "held_out", None)
        if dataset is None:
            raise self._error("has no `held_out` to judge a training by; add one, of its own kind")
        judged = _tried(self._config, dataset, "its held_out failed")
        if not judged.samples or judged.classes != self.classes:
            contents = f"{judged.samples} samples of {judged.classes} classes"
            raise self._error(f"its held_out has {contents}, not some of {self.classes}")
        return judged

    def _item(self, index: int, epoch: int) -> tuple[torch.Tensor, int]:
        with seeded(sample_seed(self._config.seed, epoch, index)):
            item = self._dataset[index]
        sample, size = f"sample {index}", self._config.image_size
        if not isinstance(item, tuple | list) or len(item) != 2 or not torch.is_tensor(item[0]):
            raise self._error(f"{sample} is no pair of an image tensor and a label")
        image = item[0]
        try:
            label = whole_number(item[1])  # as Python, numpy and torch have them; 3.9 is not made 3
        except TypeError:
            wrong = f"{sample} has label {item[1]!r}, which is no whole number; make it one"
            raise self._error(wrong) from None
        if not image.is_floating_point() or image.shape != (3, size, size):
            raise self._error(
                f"{sample} is {image.dtype} {list(image.shape)}, not floats [3, {size}, {size}]; "
                "scale it in the factory, or set --image-size"
            )
        if not 0 <= label < self.classes:
            raise self._error(f"{sample} has label {label}, but there are {self.classes} classes")
        return image, label

    def _error(self, mistake: str) -> UsageError:
        return UsageError(f"dataset={self._config.dataset!r}: {mistake}")


def _tried(config: RunConfig, dataset: Any, failed: str) -> Own:
    """Return `dataset` as Own; turn errors of its code into an OwnCodeError that says `failed`."""
    try:
        return Own(config, dataset)
    except UsageError:
        raise
    except Exception as error:
        raise factory.OwnCodeError(f"dataset={config.dataset!r}: {failed}", error) from None


def load(config: RunConfig) -> Own:
    """Make the factory's data set and try its first sample. Raises UsageError if it is unfit."""
    dataset = factory.make("dataset", config.dataset, config)
    images = _tried(config, dataset, "asked for its size and first sample, it failed")
    if config.num_workers:
        try:
            pickle.dumps(dataset)
        except Exception as error:
            rule = f"num_workers={config.num_workers} spawns processes, which need it pickled"
            cure = "hold no lambdas, local functions, locks or open files, or --num-workers 0"
            raise images._error(f"{rule} ({factory.in_words(error)}); {cure}") from None
    return images
