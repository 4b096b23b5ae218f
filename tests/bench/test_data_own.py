"""A data set of one's own: what the door lets in, what it turns away and with which words."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from bench.config import RunConfig, UsageError
from bench.data import batches, describe, load_images


def config(factory: str, **fields: Any) -> RunConfig:
    name = factory if ":" in factory else f"tests.bench.own_data:{factory}"
    return RunConfig(**{"dataset": name, "batch_per_rank": 4, **fields})


def test_a_map_style_data_set() -> None:
    c = config("ramp", precision="float64")
    images = load_images(c)
    assert (images.classes, images.samples) == (2, 12)
    before = torch.random.get_rng_state()
    got, labels = images.__getitems__([5, 2])
    assert torch.equal(before, torch.random.get_rng_state()), "the run's own are left alone"
    assert got.shape == (2, 3, 32, 32)
    assert got.dtype == torch.float64
    assert got[:, 0, 0, 0].floor().tolist() == [5, 2]
    assert labels.tolist() == [1, 0]
    assert describe(c, images)["augmentation"] == "the data set's own"


def test_an_object_that_makes_whole_batches() -> None:
    c = config("endless")
    images = load_images(c)
    assert (images.classes, images.samples) == (3, None)
    first, second = (labels.tolist() for _, labels in islice(batches(c, 0, images), 2))
    assert (first, second) == ([0, 1, 2, 0], [1, 2, 0, 1])


def test_torchs_random_numbers_repeat_in_every_rank_and_loader_and_differ_between_epochs() -> None:
    def values(factory: str = "ramp", **fields: Any) -> torch.Tensor:
        c = config(factory, **fields)
        made = islice(batches(c, 0, load_images(c)), 6)
        return torch.cat([images[:, 0, 0, 0] for images, _ in made])

    one = values()
    assert torch.equal(one, values())
    assert torch.equal(one, values("transformed", num_workers=1))
    assert not torch.equal(one[:12].sort().values, one[12:].sort().values)
    assert not torch.equal(one.sort().values, values(seed=1).sort().values)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("nothing", "NoneType, which has no len"),
        ("without_classes", "Ramp needs `classes`"),
        ("one_class", "has one class, so its loss is 0"),
        ("other_size", r"sample 0 is torch.float32 \[3, 20, 20\], not floats \[3, 32, 32\]"),
        ("images_only", "sample 0 is no pair"),
        ("broken_labels", r"sample 0 has label 0\.9, which is no whole number"),
        ("broken_batches", r"is torch.float32 and torch.float32, not floats and torch.int64"),
        ("fails_when_made", r"with one argument, failed \(LookupError: planted in the factory\)"),
        ("fails_when_read", r"failed \(LookupError: planted in the sample\); mend it, its trace"),
        ("misshapen", r"is \[\[1, 32, 32\], 'int'\], not \[\[1, 3, 32, 32\], \[1\]\]"),
    ],
)
def test_what_is_no_data_set_is_turned_away_in_one_line(factory: str, words: str) -> None:
    c = config(factory)
    with pytest.raises(UsageError, match=words) as caught:
        list(islice(batches(c, 0, load_images(c)), 3))
    assert "\n" not in str(caught.value)


def test_a_data_set_smaller_than_a_step_is_refused() -> None:
    with pytest.raises(UsageError, match="a step takes 16 samples"):
        load_images(config("ramp", batch_per_rank=16))


def test_an_endless_data_set_has_no_fixed_parts() -> None:
    with pytest.raises(UsageError, match="is endless"):
        load_images(config("endless", sharding="fixed"))
