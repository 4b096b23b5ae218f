"""Data sets on disk: as published or not at all; image folders; augmentation."""

from __future__ import annotations

import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bench.config import ON_DISK, RunConfig, UsageError
from bench.data import batches, describe, load_held_out, load_images
from bench.data.dataset import Indices, import_torchvision
from bench.data.on_disk import crop_and_flip, epoch_crops, image_folder, load
from tests.bench import disk


def complaint(config: RunConfig) -> str:
    with pytest.raises(UsageError) as caught:
        load_images(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dataset", disk.PUBLISHED)
def test_published_sets_are_read_byte_for_byte(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.publish(dataset, tmp_path, monkeypatch)
    config = disk.config(dataset, tmp_path, epochs=1)
    trained: Any = load_images(config)
    judged: Any = load_held_out(config, trained)
    assert np.array_equal(trained.pixels.numpy(), disk.pixels(20))
    assert trained.labels.tolist() == disk.LABELS, "SVHN labels a 0 as 10"
    assert (trained.classes, trained.samples) == (100 if dataset == "cifar100" else 10, 20)
    assert np.array_equal(judged.pixels.numpy(), disk.pixels(3, seed=1))
    assert judged.labels.tolist() == disk.TEST_LABELS
    facts = describe(config, trained)
    assert (facts["steps_per_epoch"], facts["files_as_published"]) == (5, True)
    for images, alike in ((trained, False), (judged, True)):
        first, second = (images.__getitems__(Indices([0, 1, 2], e))[0] for e in (0, 1))
        assert torch.equal(first, second) == alike, "what judges is never augmented"


def test_a_batch_is_the_bytes_normalised_and_resized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.publish("cifar10", tmp_path, monkeypatch)
    plain = load(disk.config("cifar10", tmp_path), held_out=True)
    images, labels = plain.__getitems__([2, 0])
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
    std = torch.tensor([0.2470, 0.2435, 0.2616]).reshape(3, 1, 1)
    restored = ((images * std + mean) * 255).round().to(torch.uint8).numpy()
    assert np.array_equal(restored, disk.pixels(3, seed=1)[[2, 0]])
    assert (images.dtype, labels.dtype, labels.tolist()) == (torch.float32, torch.int64, [5, 9])
    halved = load(disk.config("cifar10", tmp_path, image_size=8), held_out=True)
    small = halved.__getitems__([2, 0])[0]
    assert small.shape == (2, 3, 8, 8)
    assert float(small.mean()) == pytest.approx(float(images.mean()), abs=0.02)
    assert float(small.std()) < 0.4 * float(images.std()), "antialiased: noise averages out"


class Hostile:
    """Unpickled, it leaves a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.trace,)  # type: ignore[return-value]


@pytest.mark.parametrize("dataset", disk.PUBLISHED)
def test_what_was_not_published_is_refused_and_never_unpickled(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.publish(dataset, tmp_path, monkeypatch)[0]
    whole, trace = file.read_bytes(), tmp_path / "trace"
    for content in (whole[:-1], b"", b"<html>404 Not Found</html>", pickle.dumps(Hostile(trace))):
        file.write_bytes(content)
        line = complaint(disk.config(dataset, tmp_path))
        said = f"dataset={dataset}: its train part, as it was published, is not in data_dir="
        assert line.startswith(f"{said}{tmp_path}; put http")
    assert not trace.exists()
    file.write_bytes(whole)
    assert load_images(disk.config(dataset, tmp_path)).samples == 20


def test_a_folder_of_jpegs_is_what_torchvisions_evaluation_makes(tmp_path: Path) -> None:
    paths = disk.write_folder(tmp_path)
    images = image_folder(disk.config("imagefolder", tmp_path), tmp_path, False)
    assert (images.classes, images.samples) == (2, 12)
    got, labels = images.__getitems__([0, 11])
    assert (got.shape, labels.tolist()) == ((2, 3, 32, 32), [0, 1])
    import_torchvision()
    from torchvision.transforms import v2

    floats = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    normal = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    standard = v2.Compose([v2.Resize(37), v2.CenterCrop(32), *floats, normal])
    for ours, path in zip(got, (paths[0], paths[11]), strict=True):
        assert torch.allclose(ours, standard(Image.open(path)), atol=1e-5)


def folder_of(root: Path, images: dict[str, Image.Image]) -> Any:
    for name, image in images.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(root / name)
    return load_images(disk.config("imagefolder", root, batch_per_rank=1, image_size=8))


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path: Path) -> None:
    grey = Image.fromarray(np.full((8, 8), 0x8040, np.uint16))
    plain = Image.fromarray(np.full((8, 8), 0x80, np.uint8))
    deep = folder_of(tmp_path / "16", {"a/0.png": grey, "b/0.png": grey})
    flat = folder_of(tmp_path / "8", {"a/0.png": plain, "b/0.png": plain})
    assert torch.equal(deep.__getitems__([0])[0], flat.__getitems__([0])[0])
    floats = Image.fromarray(np.ones((8, 8), np.float32))
    with pytest.raises(UsageError, match="mode F, whose range is not known"):
        folder_of(tmp_path / "f", {"a/0.tiff": floats, "b/0.tiff": floats}).__getitems__([0])


def test_folders_that_are_none_hold_one_class_or_are_one_level_too_high(tmp_path: Path) -> None:
    assert "nowhere" in complaint(disk.config("imagefolder", tmp_path / "nowhere"))
    for part in ("train", "val"):
        disk.write_folder(tmp_path / part)
    assert f"use {tmp_path / 'train'}" in complaint(disk.config("imagefolder", tmp_path))
    image = Image.fromarray(np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(UsageError, match="has one class"):
        folder_of(tmp_path / "one", {"a/0.png": image})
    nested = folder_of(tmp_path / "two", {"x/a/0.png": image, "y/b/0.png": image})
    assert "one level too high" in nested.doubt
    assert folder_of(tmp_path / "flat", {"x/0.png": image, "y/0.png": image}).doubt == ""


@pytest.mark.parametrize(("kept", "num_workers"), [(0.5, 1), (0.0, 0)])
def test_an_unreadable_jpeg_fails_the_run_with_its_path(
    kept: float, num_workers: int, tmp_path: Path
) -> None:
    path = disk.write_folder(tmp_path)[4]
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))] or b"no image")
    config = disk.config("imagefolder", tmp_path, num_workers=num_workers)
    with pytest.raises(UsageError) as caught:
        list(islice(batches(config, 0, load_images(config)), 3))
    assert str(caught.value).startswith(f"{path} is no readable image")
    assert "\n" not in str(caught.value)


# one that is ended while it makes its next batch may abort; what it made before is what counts
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_same_bits_whatever_the_ranks_and_loading_processes(tmp_path: Path) -> None:
    """Three steps an epoch: seven reach into the third, and augmentation differs between epochs."""
    disk.write_folder(tmp_path)

    def joined(world_size: int, num_workers: int = 0) -> list[torch.Tensor]:
        batch = {"batch_per_rank": None, "global_batch": 4, "num_workers": num_workers}
        config = disk.config("imagefolder", tmp_path, backend="ddp", world_size=world_size, **batch)
        images = load_images(config)
        ranks = [list(islice(batches(config, rank, images), 7)) for rank in range(world_size)]
        return [torch.cat([rank[step][0] for rank in ranks]) for step in range(7)]

    one = joined(1)
    for other in (joined(2), joined(4), joined(1, num_workers=1)):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dataset", ["cifar10", "imagefolder"])
def test_augmentation_is_of_seed_epoch_and_sample(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dataset == "imagefolder":
        disk.write_folder(tmp_path)
    else:
        disk.publish(dataset, tmp_path, monkeypatch)
    images = load_images(disk.config(dataset, tmp_path))
    first = images.__getitems__(Indices([3, 5, 7, 2], 0))[0]
    alone = images.__getitems__(Indices([7], 0))[0][0]
    assert torch.equal(first[2], alone), "whichever samples stand beside it"
    assert not torch.equal(first, images.__getitems__(Indices([3, 5, 7, 2], 1))[0])
    again = images.__getitems__(Indices([3, 5, 7, 2], 0))[0]
    assert torch.equal(first, again), "also after another epoch"
    other = load_images(disk.config(dataset, tmp_path, seed=1))
    assert not torch.equal(first, other.__getitems__(Indices([3, 5, 7, 2], 0))[0])


def test_a_folders_validation_stands_beside_it(tmp_path: Path) -> None:
    disk.write_folder(tmp_path / "train")
    image = disk.write_folder(tmp_path / "val", per_class=2)[0]
    config = disk.config("imagefolder", tmp_path / "train", epochs=1)
    trained = load_images(config)
    judged = load_held_out(config, trained)
    assert (judged.classes, judged.samples) == (trained.classes, 2 * trained.classes)
    assert torch.equal(*(judged.__getitems__(Indices([0], epoch))[0] for epoch in (0, 1)))
    with pytest.raises(UsageError, match="is what a training is judged by"):
        load_held_out(config.model_copy(update={"data_dir": tmp_path / "val"}), judged)
    (tmp_path / "val" / "one more").mkdir()
    (tmp_path / "val" / "one more" / image.name).write_bytes(image.read_bytes())
    with pytest.raises(UsageError, match=r"classes, other than the .* give both the same folders"):
        load_held_out(config, trained)


def test_crop_and_flip_is_what_the_rows_say() -> None:
    images = disk.pixels(5)
    rows = np.array([[0, 0, 0], [8, 8, 1], [4, 4, 0], [3, 7, 1], [4, 4, 1]], np.uint8)
    cropped = crop_and_flip(images, rows)
    for image, (down, right, mirrored), ours in zip(images, rows, cropped, strict=True):
        padded = np.zeros((3, 40, 40), np.uint8)
        padded[:, 4:36, 4:36] = image
        expected = padded[:, down : down + 32, right : right + 32]
        assert np.array_equal(ours, expected[:, :, ::-1] if mirrored else expected)
    assert np.array_equal(images, disk.pixels(5)), "the data set itself is not touched"


def test_crops_are_uniform_and_house_numbers_never_mirrored() -> None:
    rows = epoch_crops(0, 0, 8100, flips=True)
    for column in (0, 1):
        counts = np.bincount(rows[:, column])
        assert len(counts) == 9
        assert abs(counts - 900).max() < 5 * 30  # five standard deviations of a binomial
    assert abs(int(rows[:, 2].sum()) - 4050) < 5 * 45
    assert not epoch_crops(0, 3, 100, flips=False)[:, 2].any()
    assert ON_DISK["svhn"].flips is False
