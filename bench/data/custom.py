"""The user's own data set: package.module:factory, called with the configuration of the run."""

from __future__ import annotations

from contextlib import suppress
from operator import index as whole_number
from typing import Any

import torch
from torch.utils.data import Dataset

from bench import factory
from bench.config import RunConfig, UsageError
from bench.data.augment import sample_random
from bench.data.dataset import Batch, epoch_of, image_dtype
from bench.models import import_torchvision

# here, because a loading process must do it before it meets the user's transforms, as we must
with suppress(UsageError):
    import_torchvision()


class Own(Dataset[Batch]):
    """What the user's factory made: whole batches (bench.data.Images) or map-style samples.

    While sample i is made, torch's random numbers are those of (seed, epoch, i), so torchvision's
    transforms repeat.
    """

    def __init__(self, config: RunConfig, made: Any) -> None:
        self._config, self._made = config, made
        given: Any = getattr(made, "samples", "none")
        self._whole = callable(getattr(made, "__getitems__", None)) and (
            given is None or _is_count(given)
        )
        if not self._whole and not all(
            callable(getattr(made, name, None)) for name in ("__getitem__", "__len__")
        ):
            raise UsageError(
                f"dataset={config.dataset!r}: the factory gave a {type(made).__name__}, which has "
                f"no len() and [i]; add them"
            )
        self.classes = _classes(config, made)
        self.samples: int | None = given if self._whole else len(made)

    def __getitems__(self, indices: list[int]) -> Batch:
        if self._whole:
            batch: Batch = self._made.__getitems__(indices)
            return batch
        images, labels = zip(
            *(self._item(index, epoch_of(indices)) for index in indices), strict=True
        )
        return torch.stack(images).to(image_dtype(self._config)), torch.tensor(labels)

    def _item(self, index: int, epoch: int) -> tuple[torch.Tensor, int]:
        seed = int(sample_random(self._config.seed, epoch, index).integers(2**63))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            item = self._made[index]
        name, size = self._config.dataset, self._config.image_size
        if not (
            isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], torch.Tensor)
        ):
            raise UsageError(
                f"dataset={name!r}: sample {index} is no pair of an image tensor and a label"
            )
        image, label = item[0], _label(name, index, item[1])
        if not image.is_floating_point() or image.shape != (3, size, size):
            raise UsageError(
                f"dataset={name!r}: sample {index} is {image.dtype} {list(image.shape)}, not "
                f"floats [3, {size}, {size}]; scale it in the factory, or set --image-size"
            )
        if not 0 <= label < self.classes:
            raise UsageError(
                f"dataset={name!r}: sample {index} has label {label}, but there are "
                f"{self.classes} classes"
            )
        return image, label


def _label(name: str, index: int, label: Any) -> int:
    """A whole number as Python, numpy and torch have them; 3.9 is not made 3."""
    try:
        return whole_number(label)
    except TypeError:
        raise UsageError(
            f"dataset={name!r}: sample {index} has label {label!r}, which is no whole number; "
            f"make it one"
        ) from None


def _is_count(value: Any) -> bool:
    """True for a whole number; True itself is 1 to Python, but no number of classes."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def load(config: RunConfig) -> Own:
    """What the factory makes, its first sample tried. Raises UsageError if it is no data set."""
    made = factory.make("dataset", config.dataset, config)
    try:
        images = Own(config, made)
        if images.samples != 0:
            _try_sample(config, images)
    except UsageError:
        raise
    except Exception as error:
        raise factory.OwnCodeError(
            f"dataset={config.dataset!r}: asked for its size and first sample, it failed", error
        ) from None
    return images


def _classes(config: RunConfig, made: Any) -> int:
    """`classes` is a number, or a sequence of names as torchvision's data sets have it."""
    given = getattr(made, "classes", None)
    classes = len(given) if isinstance(given, tuple | list) else given
    if not _is_count(classes) or not classes:
        raise UsageError(
            f"dataset={config.dataset!r}: {type(made).__name__} needs `classes`, their number; it "
            f"has {given!r}"
        )
    return int(classes)


def _try_sample(config: RunConfig, images: Own) -> None:
    wanted = [[1, 3, config.image_size, config.image_size], [1]]
    batch = images.__getitems__([0])
    shapes = [
        list(part.shape) if isinstance(part, torch.Tensor) else type(part).__name__
        for part in batch
    ]
    if shapes != wanted:
        raise UsageError(
            f"dataset={config.dataset!r}: a batch of one sample is {shapes}, not {wanted}"
        )
    image, label = batch
    if not image.is_floating_point() or label.dtype != torch.int64:
        raise UsageError(
            f"dataset={config.dataset!r}: a batch is {image.dtype} and {label.dtype}, not floats "
            f"and torch.int64"
        )
