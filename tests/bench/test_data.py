"""Data: every sample at most once per epoch, in the same order for every number of ranks."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from bench.config import RunConfig
from bench.config.fields import DIGITS_SAMPLES
from bench.data import batches, describe, load_images, step_indices
from bench.data.sampler import fixed_part, rank_indices
from bench.train.input import Input


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
    assert next(step_indices(1797, 300, seed=4)).tolist() != steps[0].tolist()
    assert describe(config(world_size=2), load_images(config(world_size=2))) == {
        "samples": 1797,
        "steps_per_epoch": 5,
        "dropped_per_epoch": 297,
        "augmentation": "none",
        "sharding": "reshuffled over all ranks every epoch",
        "preprocessing": "inside the clock",
    }


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_shards_join_to_the_global_batch_whatever_the_number_of_ranks(
    dataset: str, world_size: int
) -> None:
    whole = take(config(dataset=dataset, global_batch=30), 0, 3)
    divided = config(dataset=dataset, global_batch=30, world_size=world_size)
    shards = [take(divided, rank, 3) for rank in range(world_size)]
    for step in range(3):
        for part in (0, 1):
            joined = torch.cat([shards[r][step][part] for r in range(world_size)])
            assert torch.equal(joined, whole[step][part])


def test_synthetic_batches_are_fresh_and_from_the_seed() -> None:
    one, two = take(config(dataset="synthetic", global_batch=4), 0, 2)
    assert not torch.equal(one[0], two[0])
    again = take(config(dataset="synthetic", global_batch=4, precision="float64"), 0, 1)[0]
    assert (one[0].dtype, again[0].dtype) == (torch.float32, torch.float64)
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
    assert load_images(c).samples == DIGITS_SAMPLES
    images, got = load_images(c).__getitems__([5, 0, 1796])
    assert got.tolist() == labels[[5, 0, 1796]].tolist()
    assert images.shape == (3, 3, 16, 16)
    restored = images[0, 1, ::2, ::2] * pixels.std() + pixels.mean()
    assert restored.numpy() == pytest.approx(pixels[5].reshape(8, 8), abs=1e-4)


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_a_rank_keeps_its_fixed_part_for_all_epochs_in_a_new_order(world_size: int) -> None:
    parts = [fixed_part(1797, world_size, rank, seed=5) for rank in range(world_size)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1797))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert parts[0].tolist() != fixed_part(1797, world_size, 0, seed=6).tolist()
    c = config(global_batch=300, world_size=world_size, sharding="fixed", seed=5)
    assert describe(c, load_images(c))["dropped_per_epoch"] == 297
    for rank, part in enumerate(parts):
        steps = list(islice(rank_indices(c, rank, 1797), 10))
        epochs = [[i for step in steps[start : start + 5] for i in step] for start in (0, 5)]
        assert [step.epoch for step in steps] == [0] * 5 + [1] * 5
        for epoch in epochs:
            assert len(epoch) == len(set(epoch)) == 5 * 300 // world_size
            assert set(epoch) <= set(part.tolist())
        assert epochs[0] != epochs[1]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_preprocessing_outside_makes_the_batches_of_the_run_beforehand(num_workers: int) -> None:
    c = config(global_batch=30, warmup_steps=3, windows=2, steps_per_window=2)
    outside = c.model_copy(update={"preprocessing": "outside", "num_workers": num_workers})
    images = load_images(outside)
    ready = batches(outside, 0, images)
    del images.__dict__["_images"]  # whoever still read from the data set would fail
    made = list(ready)
    assert len(made) == 3 + 2 * 2
    for ours, theirs in zip(made, take(c, 0, 7), strict=True):
        assert torch.equal(ours[0], theirs[0])
    assert describe(outside, load_images(outside))["preprocessing"] == (
        "outside the clock: all batches made beforehand and kept in memory"
    )


def test_a_resident_batch_is_every_step_s_and_each_rank_has_another() -> None:
    c = config(global_batch=8, world_size=2, preprocessing="resident", precision="bf16")
    images = load_images(c)
    ranks = [Input(c, batches(c, rank, images), torch.device("cpu")) for rank in (0, 1)]
    (first, labels), (second, again) = ranks[0].step(), ranks[0].step()
    assert first is second
    assert labels is again
    assert torch.equal(first, take(c, 0, 1)[0][0].to(torch.bfloat16))
    assert ranks[0].samples == 8
    assert not torch.equal(first, ranks[1].step()[0])
    facts = describe(c, images)
    assert str(facts["preprocessing"]).endswith("one batch, kept on the device, is every step's")
    assert str(facts["sharding"]).startswith("the same samples in every step")
