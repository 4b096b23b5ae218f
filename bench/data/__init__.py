"""The data set by its name, this rank's batches of it, and what the run log says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from torch.utils.data import DataLoader, Dataset

from bench.config import RunConfig, UsageError
from bench.config.fields import ON_DISK, PUBLISHED
from bench.data import augment
from bench.data.dataset import Batch, Blank, Digits, Generated, Images, Indices, Synthetic
from bench.data.sampler import rank_indices, step_indices
from bench.instrument.timeline import read_for
from bench.lifecycle import loading

__all__ = ["Batch", "Images", "Indices", "batches", "describe", "load_held_out", "load_images"]
__all__ += ["step_indices"]

_SHARDING = {
    "reshuffled": "reshuffled over all ranks every epoch",
    "fixed": "a fixed part per rank for all epochs, in a new order every epoch",
}
_PREPROCESSING = {
    "inside": "inside the clock",
    "outside": "outside the clock: all batches made beforehand and kept in memory",
    "resident": "outside the clock: one batch, kept on the device, is every step's",
}


def load_images(config: RunConfig) -> Images:
    """Load the data set of `config`, downloaded once. Raises UsageError if it cannot be had."""
    images: Images
    if config.emulate is not None:
        return Blank(read_for(config)[0].classes)
    if ":" in config.dataset:  # imported only where it is asked for
        from bench.data import custom

        images = custom.load(config)
    else:
        images = _by_name(config)
    name = f"dataset={config.dataset}"
    if images.samples is None and config.sharding == "fixed":
        raise UsageError(f"sharding=fixed divides a data set, and {name} is endless; leave it out")
    if images.classes < 2:
        raise UsageError(
            f"{name} has one class, so its loss is 0 and nothing is learnt; add others"
        )
    if images.samples is not None and images.samples < config.samples_per_step:
        few = f"{name} has {images.samples}; use a smaller batch"
        raise UsageError(f"a step takes {config.samples_per_step} samples, but {few}")
    return images


def load_held_out(config: RunConfig, images: Images) -> Images:
    """Load samples that a training of `images` is judged by, never augmented. Raises UsageError."""
    if images.samples is None:
        endless = f"dataset={config.dataset} is endless"
        raise UsageError(
            f"{endless}, and epochs={config.epochs} asks for its end; leave epochs out"
        )
    if ":" in config.dataset:
        from bench.data import custom

        assert isinstance(images, custom.Own)
        return images.held_out()
    return _by_name(config, held_out=True)


def _by_name(config: RunConfig, held_out: bool = False) -> Images:
    if config.dataset in ON_DISK:
        from bench.data import on_disk

        return on_disk.load(config, held_out)
    if config.dataset == "synthetic":
        return Synthetic(config)
    return (Digits if config.dataset == "digits" else Generated)(config, held_out)


class _Loaded(Dataset[Batch | UsageError]):
    """Returns a user's mistake as a value: raised in a loading process, it is a traceback."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def __getitems__(self, indices: list[int]) -> Batch | UsageError:
        try:
            return self._images.__getitems__(indices)
        except UsageError as error:
            return error


def batches(
    config: RunConfig,
    rank: int,
    images: Images,
    on_batch: Callable[[], object] = lambda: None,
) -> Iterator[Batch]:
    """Make this rank's batches, endless: the union over ranks is the step's global batch.

    With preprocessing=outside, the batches of the run's steps, all made before this returns;
    `on_batch` is called for each.
    """
    loader: DataLoader[Batch | UsageError] = DataLoader(
        _Loaded(images),
        batch_sampler=rank_indices(config, rank, images.samples),
        collate_fn=_as_it_is,  # type: ignore[arg-type]  # __getitems__ makes whole batches
        num_workers=config.num_workers,
        multiprocessing_context=loading.Context() if config.num_workers else None,
        persistent_workers=config.num_workers > 0,
        pin_memory=config.device == "cuda",  # or the copy to the device would hold the loop up
    )
    # loading processes start here, not in the first step
    loaded_batches = _without_mistakes(iter(loader))
    if config.preprocessing != "outside":
        return loaded_batches
    prepared = []
    for batch in islice(loaded_batches, config.steps):
        prepared.append(batch)
        on_batch()
    return iter(prepared)


def _as_it_is(batch: Batch | UsageError) -> Batch | UsageError:
    return batch


def _without_mistakes(loaded: Iterator[Batch | UsageError]) -> Iterator[Batch]:
    for batch in loaded:
        if isinstance(batch, UsageError):
            raise batch
        yield batch


def describe(config: RunConfig, images: Images) -> dict[str, int | str | bool | None]:
    """Describe the data for the run log, with the remainder that each epoch drops."""
    samples, step, sharding = images.samples, config.samples_per_step, _SHARDING[config.sharding]
    sharding = "endless: no sample is seen twice" if samples is None else sharding
    if config.preprocessing == "resident":
        sharding = "the same samples in every step, others on each rank"
    return {
        "samples": samples,
        "steps_per_epoch": None if samples is None else samples // step,
        "dropped_per_epoch": 0 if samples is None else samples % step,
        "augmentation": augment.in_words(config),
        "sharding": sharding,
        "preprocessing": _PREPROCESSING[config.preprocessing],
        # the files' checksums are those that torchvision knows
        **({"files_as_published": True} if config.dataset in PUBLISHED else {}),
    }
