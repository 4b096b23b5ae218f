"""Data sets on disk: parsed byte for byte; every defect is one line that names the file."""

from __future__ import annotations

import os
import pickle
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from bench.config import RunConfig, UsageError
from bench.data import batches, describe, load_images
from bench.data.dataset import Indices
from bench.data.on_disk import Arrays
from tests.bench import disk

SAMPLES = 20
LABELS = [index % 10 for index in range(SAMPLES)]


def write(dataset: str, folder: Path) -> Path:
    """Write the data set with disk.pixels(SAMPLES) and LABELS; return its last training file."""
    images = disk.pixels(SAMPLES)
    if dataset == "svhn":
        return disk.write_svhn(folder, images, [label or 10 for label in LABELS])
    if dataset == "cifar10":
        return disk.write_cifar10(folder, images, LABELS)[-1]
    if dataset == "imagefolder":
        return disk.write_folder(folder)[-1]
    return disk.write_cifar100(folder, images, LABELS)


def arrays(dataset: str, folder: Path, **fields: object) -> Arrays:
    images = load_images(disk.config(dataset, folder, **fields))
    assert isinstance(images, Arrays)
    return images


def complaint(config: RunConfig) -> str:
    with pytest.raises(UsageError) as caught:
        load_images(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dataset", ["svhn", "cifar10", "cifar100"])
def test_parsed_byte_for_byte(dataset: str, tmp_path: Path) -> None:
    write(dataset, tmp_path)
    images = arrays(dataset, tmp_path)
    assert np.array_equal(images.pixels.numpy(), disk.pixels(SAMPLES))
    assert images.labels.tolist() == LABELS, "SVHN labels a 0 as 10"
    assert images.classes == (100 if dataset == "cifar100" else 10)
    assert images.samples == SAMPLES


def test_a_batch_is_the_bytes_normalised(tmp_path: Path) -> None:
    write("cifar10", tmp_path)
    plain = arrays("cifar10", tmp_path, augment=False)
    images, labels = plain.__getitems__([7, 3])
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
    std = torch.tensor([0.2470, 0.2435, 0.2616]).reshape(3, 1, 1)
    restored = ((images * std + mean) * 255).round().to(torch.uint8).numpy()
    assert images.dtype == torch.float32
    assert np.array_equal(restored, disk.pixels(SAMPLES)[[7, 3]])
    assert labels.tolist() == [7, 3]
    assert labels.dtype == torch.int64


def test_another_size(tmp_path: Path) -> None:
    write("cifar10", tmp_path)
    small = arrays("cifar10", tmp_path, augment=False, image_size=16).__getitems__([0])[0]
    whole = arrays("cifar10", tmp_path, augment=False).__getitems__([0])[0]
    assert small.shape == (1, 3, 16, 16)
    assert float(small.mean()) == pytest.approx(float(whole.mean()), abs=0.02)
    assert float(small.std()) < 0.8 * float(whole.std()), "antialiased: noise averages out"


@pytest.mark.parametrize("dataset", ["svhn", "cifar10", "cifar100"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9999])
def test_truncated_files(dataset: str, kept: float, tmp_path: Path) -> None:
    path = write(dataset, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    line = complaint(disk.config(dataset, tmp_path))
    assert f"{path} is truncated or corrupt" in line
    assert "delete it" in line


def test_files_that_parse_but_hold_something_else(tmp_path: Path) -> None:
    images = disk.pixels(SAMPLES)
    path = write("cifar100", tmp_path)
    outside = "labels other than 0 to 99"
    for content, words in [
        (disk.cifar_bytes(images, [*LABELS[:-1], 100], b"fine_labels"), outside),
        (disk.cifar_bytes(images, LABELS[:-1], b"fine_labels"), "20 images and 19 labels"),
        (disk.cifar_bytes(images[:, :2], LABELS, b"fine_labels"), "truncated or corrupt"),
        (disk.cifar_bytes(images, LABELS, b"coarse_labels"), "fine_labels"),
        (b"<html>404 Not Found</html>", "truncated or corrupt"),
    ]:
        path.write_bytes(content)
        line = complaint(disk.config("cifar100", tmp_path))
        assert words in line
        assert str(path) in line
    (svhn := tmp_path / "train_32x32.mat").write_bytes(disk.mat_bytes(images, [11] * SAMPLES))
    assert "labels other than 0 to 9" in complaint(disk.config("svhn", tmp_path))
    savemat(svhn, {"X": images.transpose(2, 3, 1, 0).astype(np.float64), "y": np.array([LABELS]).T})
    assert "float64" in complaint(disk.config("svhn", tmp_path))


def test_what_the_log_says(tmp_path: Path) -> None:
    write("cifar10", tmp_path)
    config = disk.config("cifar10", tmp_path, sharding="fixed")
    facts = describe(config, load_images(config))
    assert (facts["steps_per_epoch"], facts["files_as_published"]) == (5, False)
    flips = "random crop after 4 pixels of padding, horizontal flip"
    assert facts["augmentation"] == flips


def test_folder_of_jpegs(tmp_path: Path) -> None:
    paths = disk.write_folder(tmp_path)
    images = load_images(disk.config("imagefolder", tmp_path, augment=False))
    assert (images.classes, images.samples) == (2, 12)
    got, labels = images.__getitems__([0, 11])
    assert got.shape == (2, 3, 32, 32)
    assert labels.tolist() == [0, 1]
    from bench.models import import_torchvision

    import_torchvision()
    from torchvision.transforms import v2

    floats = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    normal = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    standard = v2.Compose([v2.Resize(37), v2.CenterCrop(32), *floats, normal])
    for ours, path in zip(got, (paths[0], paths[11]), strict=True):
        assert torch.allclose(ours, standard(Image.open(path)), atol=1e-5)


def test_folders_that_are_none(tmp_path: Path) -> None:
    assert "nowhere" in complaint(disk.config("imagefolder", tmp_path / "nowhere"))
    no_class = complaint(disk.config("imagefolder", tmp_path))
    assert "must hold a folder of images per class" in no_class
    disk.write_folder(tmp_path / "train")
    disk.write_folder(tmp_path / "val")
    assert str(tmp_path / "train") in complaint(disk.config("imagefolder", tmp_path))
    (tmp_path / "train" / "n0").mkdir()
    assert "n0" in complaint(disk.config("imagefolder", tmp_path / "train"))


@pytest.mark.parametrize(("content", "num_workers"), [("truncated", 1), ("text", 0)])
def test_an_unreadable_jpeg_fails_the_run_with_its_path(
    content: str, num_workers: int, tmp_path: Path
) -> None:
    path = disk.write_folder(tmp_path)[4]
    whole = path.read_bytes()
    broken = {"truncated": whole[: len(whole) // 2], "text": b"no image"}
    path.write_bytes(broken[content])
    config = disk.config("imagefolder", tmp_path, num_workers=num_workers)
    with pytest.raises(UsageError) as caught:
        list(islice(batches(config, 0, load_images(config)), 3))
    assert str(caught.value).startswith(f"{path} is no readable image")
    assert "\n" not in str(caught.value)


# one that is ended while it makes its next batch may abort; what it made before is what counts
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_same_bits_whatever_the_ranks_and_loading_processes(tmp_path: Path) -> None:
    """Three steps an epoch: seven reach into the third, and augmentation differs between epochs."""
    write("imagefolder", tmp_path)

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
def test_augmentation_is_of_seed_epoch_and_sample(dataset: str, tmp_path: Path) -> None:
    write(dataset, tmp_path)
    images = load_images(disk.config(dataset, tmp_path))
    first = images.__getitems__(Indices([3, 5, 7, 2], 0))[0]
    alone = images.__getitems__(Indices([7], 0))[0][0]
    assert torch.equal(first[2], alone), "whoever stands beside it"
    assert not torch.equal(first, images.__getitems__(Indices([3, 5, 7, 2], 1))[0])
    again = images.__getitems__(Indices([3, 5, 7, 2], 0))[0]
    assert torch.equal(first, again), "also after another epoch"
    other = load_images(disk.config(dataset, tmp_path, seed=1))
    assert not torch.equal(first, other.__getitems__(Indices([3, 5, 7, 2], 0))[0])


class Hostile:
    """Unpickled, it leaves a file where it was told to."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
@pytest.mark.parametrize("protocol", [0, 5])
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_that_a_file_holds_is_run(
    dataset: str, protocol: int, inside: bool, tmp_path: Path
) -> None:
    path, trace = write(dataset, tmp_path), tmp_path / "trace"
    bad: object = Hostile(trace)
    if inside:
        bad = {"data": disk.pixels(SAMPLES), "labels": LABELS, "more": bad}
    content = pickle.dumps(bad, protocol)
    pickle.loads(content)
    assert trace.exists(), "it would"
    trace.unlink()
    for file in path.parent.iterdir():
        if file.is_file():  # the table of class names is a pickle as well
            file.write_bytes(content)
    assert "it names posix.system" in complaint(disk.config(dataset, tmp_path))
    assert not trace.exists()


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_set_that_somebody_pickled_today_is_read(protocol: int, tmp_path: Path) -> None:
    path = write("cifar100", tmp_path)
    images = disk.pixels(7, seed=3)
    for rows in (images.reshape(7, -1), np.asfortranarray(images.reshape(7, -1))):
        path.write_bytes(pickle.dumps({"data": rows, "fine_labels": LABELS[:7]}, protocol))
        read = arrays("cifar100", tmp_path)
        assert np.array_equal(read.pixels.numpy(), images)
        assert read.labels.tolist() == LABELS[:7]
        assert not read.as_published


@pytest.mark.parametrize("kind", ["O", "V8"])
def test_arrays_of_anything_but_numbers_are_refused(kind: str, tmp_path: Path) -> None:
    path = write("cifar100", tmp_path)
    path.write_bytes(pickle.dumps({"data": np.zeros((7, 3072), kind), "fine_labels": LABELS[:7]}))
    assert "truncated or corrupt" in complaint(disk.config("cifar100", tmp_path))
