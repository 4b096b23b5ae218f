"""Augmentation, against a loop that spells it out and against torchvision's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.data.augment import (
    EpochCrops,
    _random_box,
    centre_crop,
    crop_and_flip,
    in_words,
    random_resized_crop,
    sample_random,
)
from bench.models import import_torchvision
from tests.bench import disk


def test_crop_and_flip_is_what_the_rows_say() -> None:
    images = disk.pixels(5)
    rows = np.array([[0, 0, 0], [8, 8, 1], [4, 4, 0], [3, 7, 1], [4, 4, 1]], np.uint8)
    cropped = crop_and_flip(images, rows)
    for image, (down, right, mirrored), ours in zip(images, rows, cropped, strict=True):
        padded = np.zeros((3, 40, 40), np.uint8)
        padded[:, 4:36, 4:36] = image
        expected = padded[:, down : down + 32, right : right + 32]
        assert np.array_equal(ours, expected[:, :, ::-1] if mirrored else expected)
    assert np.array_equal(cropped[2], images[2]), "the middle crop is the image"
    assert np.array_equal(images, disk.pixels(5)), "the data set itself is not touched"


def test_every_place_of_the_crop_is_taken_equally_often() -> None:
    rows = EpochCrops(seed=0, samples=8100, flips=True).rows(0, list(range(8100)))
    for column in (0, 1):
        counts = np.bincount(rows[:, column])
        assert len(counts) == 9
        assert counts.min() > 900 - 5 * 30
        assert counts.max() < 900 + 5 * 30  # five standard deviations of a binomial
    assert abs(int(rows[:, 2].sum()) - 4050) < 5 * 45


def test_house_numbers_are_never_mirrored() -> None:
    assert not EpochCrops(seed=0, samples=100, flips=False).rows(3, list(range(100)))[:, 2].any()
    config = disk.config("svhn", Path("data"))
    assert "flip" not in in_words(config)
    assert "flip" in in_words(disk.config("cifar100", Path("data")))
    assert in_words(disk.config("svhn", Path("data"), augment=False)) == "none"


@pytest.mark.parametrize("size", [(500, 375), (20, 300)])
def test_random_boxes_are_distributed_as_torchvisions(size: tuple[int, int]) -> None:
    import_torchvision()
    from torchvision.transforms import RandomResizedCrop

    image = Image.new("RGB", size)
    boxes = np.array([_random_box(*size, sample_random(0, 0, index)) for index in range(2000)])
    draw = partial(RandomResizedCrop.get_params, image, [0.08, 1.0], [3 / 4, 4 / 3])
    theirs = np.array([draw() for _ in range(2000)])  # top left h w
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= size[0]
    assert boxes[:, 3].max() <= size[1]
    left, top, right, bottom = boxes.T
    ours = np.stack([top, left, bottom - top, right - left], axis=1)
    error = np.sqrt((ours.var(0) + theirs.var(0)) / 2000)
    assert (np.abs(ours.mean(0) - theirs.mean(0)) <= 5 * error + 1e-9).all()


def test_random_resized_crop_has_the_size_and_mirrors_half_of_the_time() -> None:
    dark_to_bright = np.arange(64, dtype=np.uint8)[None, :, None] * 4
    half = Image.fromarray(dark_to_bright.repeat(64, 0).repeat(3, 2))
    mirrored = 0
    for index in range(400):
        out = np.asarray(random_resized_crop(half, 16, sample_random(1, 0, index))).astype(int)
        assert out.shape == (16, 16, 3)
        mirrored += int(out[0, 0, 0] > out[0, -1, 0])
    assert abs(mirrored - 200) < 50


@pytest.mark.parametrize("size", [(500, 375), (37, 41)])
def test_centre_crop_is_torchvisions(size: tuple[int, int]) -> None:
    import_torchvision()
    from torchvision.transforms import v2

    shape = (size[1], size[0], 3)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    theirs = v2.Compose([v2.Resize(256), v2.CenterCrop(224)])(image)
    assert np.array_equal(np.asarray(centre_crop(image, 224)), np.asarray(theirs))
