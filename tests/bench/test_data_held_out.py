"""What trainings are judged by: the test part of each data set, as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bench import data
from bench.config import RunConfig, UsageError
from bench.data.on_disk import Arrays, Folder
from tests.bench import disk

LABELS = [index % 10 for index in range(20)]
TEST_LABELS = [9, 3, 5]


def write(dataset: str, folder: Path) -> None:
    """Write twenty images to train on, and three others to be judged by."""
    trained, judged = disk.pixels(20), disk.pixels(3, seed=1)
    if dataset == "svhn":
        disk.write_svhn(folder, trained, LABELS)
        (folder / "test_32x32.mat").write_bytes(disk.mat_bytes(judged, TEST_LABELS))
    elif dataset == "cifar10":
        disk.write_cifar10(folder, trained, LABELS)
        of_test = folder / "cifar-10-batches-py" / "test_batch"
        of_test.write_bytes(disk.cifar_bytes(judged, TEST_LABELS))
    else:
        disk.write_cifar100(folder, trained, LABELS)
        of_test = folder / "cifar-100-python" / "test"
        of_test.write_bytes(disk.cifar_bytes(judged, TEST_LABELS, b"fine_labels"))


def both(config: RunConfig) -> tuple[data.Images, data.Images]:
    trained = data.load_images(config)
    return trained, data.load_held_out(config, trained)


@pytest.mark.parametrize("dataset", ["svhn", "cifar10", "cifar100"])
def test_the_published_test_part_is_judged_by_unaugmented(dataset: str, tmp_path: Path) -> None:
    write(dataset, tmp_path)
    trained, judged = both(disk.config(dataset, tmp_path, epochs=1))
    assert isinstance(trained, Arrays)
    assert isinstance(judged, Arrays)
    assert (trained.samples, judged.samples) == (20, 3)
    assert judged.labels.tolist() == TEST_LABELS
    assert np.array_equal(judged.pixels.numpy(), disk.pixels(3, seed=1))
    of_epoch = [judged.__getitems__(data.Indices([0, 1, 2], epoch))[0] for epoch in (0, 1)]
    assert torch.equal(*of_epoch)
    augmented = [trained.__getitems__(data.Indices([0, 1, 2], epoch))[0] for epoch in (0, 1)]
    assert not torch.equal(*augmented)


def test_a_missing_test_part_is_asked_for(tmp_path: Path) -> None:
    disk.write_svhn(tmp_path, disk.pixels(20), LABELS)
    with pytest.raises(UsageError, match=r"test_32x32\.mat"):
        both(disk.config("svhn", tmp_path, epochs=1))
    assert data.load_images(disk.config("svhn", tmp_path)).samples == 20


def test_a_folders_validation_stands_beside_it(tmp_path: Path) -> None:
    disk.write_folder(tmp_path / "train")
    image = disk.write_folder(tmp_path / "val", per_class=2)[0]
    config = disk.config("imagefolder", tmp_path / "train", epochs=1, image_size=32)
    trained, judged = both(config)
    assert isinstance(judged, Folder)
    assert trained.classes == judged.classes
    assert judged.samples == 2 * judged.classes
    assert torch.equal(*(judged.__getitems__(data.Indices([0], epoch))[0] for epoch in (0, 1)))
    (tmp_path / "val" / "one more").mkdir()
    (tmp_path / "val" / "one more" / image.name).write_bytes(image.read_bytes())
    with pytest.raises(UsageError, match=r"classes, other than the .* give both the same folders"):
        both(config)


def test_what_judges_is_never_trained_on(tmp_path: Path) -> None:
    disk.write_folder(tmp_path / "val")
    with pytest.raises(UsageError, match="is what a training is judged by"):
        both(disk.config("imagefolder", tmp_path / "val", epochs=1, image_size=32))


def own(name: str) -> RunConfig:
    return RunConfig(dataset=f"tests.bench.own_data:{name}", batch_per_rank=4, epochs=1)


def test_a_data_set_of_ones_own_brings_what_it_is_judged_by() -> None:
    trained, judged = both(own("judged"))
    assert (trained.samples, judged.samples) == (12, 5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ramp", "has no `held_out` to judge a training by; add one"),
        ("judged_by_others", "its held_out has 5 samples of 3 classes, not some of 2"),
        ("endless", "is endless, and epochs=1 asks for its end; leave epochs out"),
    ],
)
def test_one_that_cannot_be_judged_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        both(own(name))
