"""A data set of one's own: what the door lets in, what it turns away and with which words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from bench.config import RunConfig, UsageError
from bench.data import batches, describe, load_held_out, load_images


class Ramp(Dataset[tuple[torch.Tensor, int]]):
    """Sample i is filled with i, plus a random number from torch."""

    def __init__(self, config: RunConfig, samples: int = 12, **wrong: Any) -> None:
        self.classes: Any = ["even", "odd"]
        self._size, self._samples = config.image_size, samples
        self.__dict__ |= wrong

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, self._size, self._size), float(index)) + torch.rand(()) / 2, index % 2


def ramp(config: RunConfig) -> Ramp:
    return Ramp(config)


def judged(config: RunConfig, **wrong: Any) -> Ramp:
    return Ramp(config, held_out=Ramp(config, samples=5, **wrong))


def judged_by_others(config: RunConfig) -> Ramp:
    return judged(config, classes=3)


def transformed(config: RunConfig) -> object:
    """Make a ramp with an object of torchvision's, which a loading process must take over."""
    from torchvision.transforms import v2

    return Ramp(config, transform=v2.RandomHorizontalFlip())


def config(factory: str, **fields: Any) -> RunConfig:
    name = f"{__name__}:{factory}"
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


def ramp_of(config: RunConfig, item: Callable[[Any, int], Any]) -> Any:
    """Make a ramp whose samples `item` makes."""
    return type("Otherwise", (Ramp,), {"__getitem__": item})(config)


IMAGE = torch.zeros(3, 32, 32)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda c: None, "NoneType, which has no len"),
        (lambda c: Ramp(c, classes=None), "Ramp needs `classes`"),
        (lambda c: Ramp(c, classes=1), "has one class, so its loss is 0"),
        (lambda c: Ramp(c, _size=20), r"is torch.float32 \[3, 20, 20\], not floats"),
        (lambda c: ramp_of(c, lambda *_: IMAGE), "sample 0 is no pair"),
        (lambda c: ramp_of(c, lambda *_: (IMAGE, 0.9)), r"label 0\.9, which is no whole number"),
        (lambda c: ramp_of(c, lambda *_: (IMAGE, 2)), "has label 2, but there are 2 class"),
        (lambda c: [].pop(), r"with one argument, failed \(IndexError: pop from empty list"),
        (
            lambda c: ramp_of(c, lambda *_: [].pop()),
            r"first sample, it failed .*mend it, its trace",
        ),
    ],
)
def test_what_is_no_data_set_is_turned_away_in_one_line(
    made: Callable[[RunConfig], Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ramp", made)
    with pytest.raises(UsageError, match=words) as caught:
        load_images(config("ramp"))
    assert "\n" not in str(caught.value)


def test_a_data_set_smaller_than_a_step_is_refused() -> None:
    with pytest.raises(UsageError, match="a step takes 16 samples"):
        load_images(config("ramp", batch_per_rank=16))


def test_a_set_that_cannot_be_pickled_is_told_before_a_process_is_spawned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.ramp", lambda c: type("Local", (Ramp,), {})(c))
    with pytest.raises(UsageError, match=r"num_workers=2 spawns processes.*--num-workers 0"):
        load_images(config("ramp", num_workers=2))


def test_a_set_brings_what_it_is_judged_by() -> None:
    c = config("judged", epochs=1)
    assert load_held_out(c, load_images(c)).samples == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ramp", "has no `held_out` to judge a training by; add one"),
        ("judged_by_others", "its held_out has 5 samples of 3 classes, not some of 2"),
    ],
)
def test_one_that_cannot_be_judged_is_refused(name: str, said: str) -> None:
    c = config(name, epochs=1)
    with pytest.raises(UsageError, match=said):
        load_held_out(c, load_images(c))
