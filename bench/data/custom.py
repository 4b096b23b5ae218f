"""The user's own data set: package.module:factory, called with the configuration of the run."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import index as whole_number
from typing import Any

import torch
from torch.utils.data import Dataset

from bench import factory
from bench.config import RunConfig, UsageError
from bench.data.augment import sample_seed
from bench.data.dataset import Batch, epoch_of, image_dtype
from bench.train.numbers import seeded
from bench.vision import import_torchvision

# at import, because a loading process must do it before it loads the user's transforms
with suppress(UsageError):
    import_torchvision()


class Own(Dataset[Batch]):
    """What the user's factory made: whole batches (bench.data.Images) or map-style samples.

    Sample i is made with torch's random numbers of (seed, epoch, i), so its transforms repeat.
    """

    def __init__(self, config: RunConfig, dataset: Any) -> None:
        self._config, self._dataset = config, dataset
        samples: Any = getattr(dataset, "samples", "none")
        makes_batches = callable(getattr(dataset, "__getitems__", None))
        self._whole = makes_batches and (samples is None or _is_count(samples))
        if not self._whole and not (
            hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        ):
            mistake = f"the factory gave a {type(dataset).__name__}, which has no len() and [i]"
            raise self._error(f"{mistake}; add them")
        classes: Any = getattr(dataset, "classes", None)  # torchvision's data sets have names
        count = len(classes) if isinstance(classes, tuple | list) else classes
        if not _is_count(count) or not count:
            need = f"{type(dataset).__name__} needs `classes`, their number"
            raise self._error(f"{need}; it has {classes!r}")
        self.classes = int(count)
        self.samples: int | None = samples if self._whole else len(dataset)

    def __getitems__(self, indices: list[int]) -> Batch:
        if self._whole:
            batch: Batch = self._dataset.__getitems__(indices)
            return batch
        items = [self._item(index, epoch_of(indices)) for index in indices]
        images, labels = zip(*items, strict=True)
        return torch.stack(images).to(image_dtype(self._config)), torch.tensor(labels)

    def held_out(self) -> Own:
        """Take the data set that trainings are judged by from the user's attribute `held_out`."""
        dataset: Any = getattr(self._dataset, "held_out", None)
        if dataset is None or dataset is self._dataset:
            raise self._error("has no `held_out` to judge a training by; add one, of its own kind")
        with _own_code(f"dataset={self._config.dataset!r}: its held_out failed", "held_out: "):
            judged = Own(self._config, dataset)
            if not judged.samples or judged.classes != self.classes:
                contents = f"{judged.samples} samples of {judged.classes} classes"
                raise self._error(f"its held_out has {contents}, not some of {self.classes}")
            judged.try_sample()
        return judged

    def try_sample(self) -> None:
        """Raise UsageError where a batch of the first sample is not what the loop takes."""
        size = self._config.image_size
        expected = [[1, 3, size, size], [1]]
        batch = self.__getitems__([0])
        shapes = [list(p.shape) if torch.is_tensor(p) else type(p).__name__ for p in batch]
        if shapes != expected:
            raise self._error(f"a batch of one sample is {shapes}, not {expected}")
        image, label = batch
        if not image.is_floating_point() or label.dtype != torch.int64:
            types = f"{image.dtype} and {label.dtype}"
            raise self._error(f"a batch is {types}, not floats and torch.int64")

    def require_picklable(self) -> None:
        """Raise UsageError where loading processes, which are spawned, could not get the set."""
        try:
            pickle.dumps(self._dataset)
        except Exception as error:
            rule = f"num_workers={self._config.num_workers} spawns processes, which need it pickled"
            cure = "hold no lambdas, local functions, locks or open files"
            why = factory.in_words(error)
            raise self._error(f"{rule} ({why}); {cure}, or --num-workers 0") from None

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

    def _error(self, wrong: str) -> UsageError:
        return UsageError(f"dataset={self._config.dataset!r}: {wrong}")


def _is_count(value: Any) -> bool:
    """Check whether `value` is a whole number; True is 1 to Python, but no number of classes."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@contextmanager
def _own_code(failed: str, part: str = "") -> Iterator[None]:
    """Raise what the user's code raises as OwnCodeError that begins with `failed`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{part}{error}") from None
    except Exception as error:
        raise factory.OwnCodeError(failed, error) from None


def load(config: RunConfig) -> Own:
    """Make the factory's data set and try its first sample. Raises UsageError if it is none."""
    dataset = factory.make("dataset", config.dataset, config)
    with _own_code(f"dataset={config.dataset!r}: asked for its size and first sample, it failed"):
        images = Own(config, dataset)
        if images.samples != 0:
            images.try_sample()
        if config.num_workers:
            images.require_picklable()
    return images
