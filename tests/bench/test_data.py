"""Data: every sample at most once per epoch, the same order for every number of ranks, nothing invented."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from bench.config import RunConfig
from bench.data import batches, describe, load_images, step_indices
from bench.rules import DIGITS_SAMPLES


def config(**fields: object) -> RunConfig:
    base: dict[str, object] = {"backend": "ddp", "dataset": "digits", "global_batch": 300}
    return RunConfig(**{**base, **fields})


def take(c: RunConfig, rank: int, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(islice(batches(c, rank, load_images(c)), steps))


def test_each_sample_at_most_once_per_epoch_and_the_rest_dropped() -> None:
    steps = list(islice(step_indices(1797, 300, seed=3), 10))
    first, second = np.concatenate(steps[:5]), np.concatenate(steps[5:])
    for epoch in (first, second):
        assert len(set(epoch.tolist())) == 1500
        assert epoch.max() < 1797
    assert set(first.tolist()) != set(second.tolist()), "every epoch is shuffled anew"
    assert describe(config(world_size=2), load_images(config(world_size=2))) == {
        "samples": 1797,
        "steps_per_epoch": 5,
        "dropped_per_epoch": 297,
    }


def test_seeds_differ() -> None:
    assert next(step_indices(1797, 300, seed=1)).tolist() != next(step_indices(1797, 300, seed=2)).tolist()


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_shards_join_to_the_global_batch_whatever_the_number_of_ranks(dataset: str, world_size: int) -> None:
    whole = take(config(dataset=dataset, global_batch=30), 0, 3)
    shards = [take(config(dataset=dataset, global_batch=30, world_size=world_size), r, 3) for r in range(world_size)]
    for step in range(3):
        for part in (0, 1):
            joined = torch.cat([shards[r][step][part] for r in range(world_size)])
            assert torch.equal(joined, whole[step][part])


def test_synthetic_batches_are_fresh_and_from_the_seed() -> None:
    one, two = take(config(dataset="synthetic", global_batch=4), 0, 2)
    assert not torch.equal(one[0], two[0])
    again = take(config(dataset="synthetic", global_batch=4), 0, 1)[0]
    other = take(config(dataset="synthetic", global_batch=4, seed=1), 0, 1)[0]
    assert torch.equal(one[0], again[0])
    assert not torch.equal(one[0], other[0])
    assert one[0].shape == (4, 3, 32, 32)
    assert one[1].min() >= 0
    assert one[1].max() < 1000


def test_digits_are_scikit_learns_own() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    c = config(global_batch=1797, image_size=16)
    images, got = load_images(c).__getitems__([5, 0, 1796])
    assert got.tolist() == labels[[5, 0, 1796]].tolist()
    assert images.shape == (3, 3, 16, 16)
    restored = images[0, 1, ::2, ::2] * pixels.std() + pixels.mean()
    assert restored.numpy() == pytest.approx(pixels[5].reshape(8, 8), abs=1e-4)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_precision_of_the_images(precision: str) -> None:
    for dataset in ("digits", "synthetic"):
        images, labels = take(config(dataset=dataset, precision=precision), 0, 1)[0]
        assert images.dtype == getattr(torch, precision)
        assert labels.dtype == torch.int64


def test_loading_processes_change_nothing() -> None:
    inside = take(config(global_batch=30), 0, 2)
    outside = take(config(global_batch=30, num_workers=2), 0, 2)
    for a, b in zip(inside, outside, strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


def test_the_config_knows_how_many_digits_there_are() -> None:
    assert load_images(config()).samples == DIGITS_SAMPLES
