"""Data sets on disk: SVHN and CIFAR whole in memory, image folders read as needed."""

from __future__ import annotations

import warnings
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from bench.config import ON_DISK, RunConfig, UsageError
from bench.data import augment, pickled
from bench.data.augment import EpochCrops, Pixels
from bench.data.dataset import Batch, epoch_of, image_dtype
from bench.data.fetch import Published, provide
from bench.models import import_torchvision


class Arrays(Dataset[Batch]):
    """32 x 32 images in memory, uint8 [n, 3, 32, 32]; floats are made batch by batch."""

    def __init__(
        self,
        config: RunConfig,
        pixels: Pixels,
        labels: list[int],
        as_published: bool,
        augmented: bool,
    ) -> None:
        # tensors, because loading processes then share this memory instead of each having a copy
        self.pixels, self.labels = torch.from_numpy(pixels), torch.tensor(labels, dtype=torch.int64)
        self._facts = ON_DISK[config.dataset]
        self.classes, self.samples = self._facts.classes, len(labels)
        self.as_published = as_published
        self._dtype, self._size, self._crops = image_dtype(config), config.image_size, None
        if augmented:
            self._crops = EpochCrops(config.seed, len(labels), self._facts.flips)

    def __getitems__(self, indices: list[int]) -> Batch:
        chosen = self.pixels.numpy()[indices]
        if self._crops is not None:
            chosen = augment.crop_and_flip(chosen, self._crops.rows(epoch_of(indices), indices))
        images = augment.normalise(torch.from_numpy(chosen), self._facts, self._dtype)
        return augment.resize(images, self._size), self.labels[indices]


class Folder(Dataset[Batch]):
    """A folder of image files per class, as ImageNet's train/; decoded anew each time."""

    def __init__(self, config: RunConfig, folder: Path, augmented: bool) -> None:
        try:
            listing = _datasets().ImageFolder(folder)
        # no folder, no class in it, or a class without an image; torchvision says which
        except OSError as error:
            wrong = f"dataset=imagefolder, data_dir={folder}: {error}"
            raise UsageError(f"{wrong}; it must hold a folder of images per class") from None
        if "train" in listing.classes and set(listing.classes) <= {"train", "val", "test"}:
            wrong = f"data_dir={folder} holds {', '.join(listing.classes)} rather than classes"
            raise UsageError(f"{wrong}; use {folder / 'train'}")
        self.doubt = _one_level_too_high(folder, listing)
        self._files: list[tuple[str, int]] = listing.samples
        self.names: list[str] = listing.classes
        self.classes, self.samples = len(listing.classes), len(listing.samples)
        self._seed, self._size, self._augment = config.seed, config.image_size, augmented
        self._dtype = image_dtype(config)

    def __getitems__(self, indices: list[int]) -> Batch:
        epoch = epoch_of(indices)
        pixels = torch.from_numpy(np.stack([self._pixels(sample, epoch) for sample in indices]))
        pixels = pixels.permute(0, 3, 1, 2).contiguous()
        labels = torch.tensor([self._files[sample][1] for sample in indices])
        return augment.normalise(pixels, ON_DISK["imagefolder"], self._dtype), labels

    def _pixels(self, sample: int, epoch: int) -> Pixels:
        path = self._files[sample][0]
        try:
            with Image.open(path) as file:
                image = _in_eight_bits(file).convert("RGB")  # decodes the whole file
        except Exception as error:  # Pillow's decoders raise many kinds; all of them mean this file
            wrong = f"{path} is no readable image ({_one_line(error)})"
            raise UsageError(f"{wrong}; replace or remove it") from None
        if not self._augment:
            return np.asarray(augment.centre_crop(image, self._size))
        random = augment.sample_random(self._seed, epoch, sample)
        return np.asarray(augment.random_resized_crop(image, self._size, random))


def _one_level_too_high(folder: Path, listing: Any) -> str:
    """Say that no class of a folder holds an image of its own, but folders that do; '' if not."""
    classes = [folder / name for name in listing.classes]
    if any(Path(path).parent in classes for path, _ in listing.samples):
        return ""
    names = ", ".join(listing.classes[:4])
    lacks = f"data_dir={folder}: its classes ({names}) hold no image of their own, but folders"
    return f"{lacks}; is it one level too high?"


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Scale pixels of 16 bits to 8, which Pillow would cut off at 255. Raises ValueError for
    pixels whose largest value nobody knows.
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode}, whose range is not known; use 8 or 16 bits")
    return image


def load(config: RunConfig, held_out: bool = False) -> Arrays | Folder:
    """Load the data set in config.data_dir, or the part of it that trainings are judged by.

    Raises UsageError if it is missing, truncated or corrupt.
    """
    assert config.data_dir is not None, "the rules demand it"
    folder, augmented = config.data_dir.expanduser(), config.augment and not held_out
    if config.dataset == "imagefolder":
        return _validation(config, folder) if held_out else Folder(config, folder, augmented)
    split = "test" if held_out else "train"
    published, checksums = _published(config.dataset, split)
    provide(published, folder)
    parts = [_parse(config.dataset, folder, name, split) for name in checksums]
    pixels = np.concatenate([pixels for pixels, _ in parts])
    labels = [label for _, labels in parts for label in labels]
    is_whole = _datasets().utils.check_integrity
    as_published = all(is_whole(folder / name, md5) for name, md5 in checksums.items())
    return Arrays(config, pixels, labels, as_published, augmented)


def _validation(config: RunConfig, trained: Path) -> Folder:
    """Load ImageNet's val/ beside its train/, with the same classes."""
    folder = trained.resolve().parent / "val"
    if folder.resolve() == trained.resolve():
        wrong = f"data_dir={trained} is what a training is judged by"
        raise UsageError(f"{wrong}, so it cannot be trained on; use the train/ beside it")
    judged, names = Folder(config, folder, False), Folder(config, trained, False).names
    if judged.names != names:
        classes = f"{len(judged.names)} classes, other than the {len(names)} of {trained}"
        raise UsageError(f"data_dir={folder} holds {classes}; give both the same folders")
    return judged


def _datasets() -> Any:
    import_torchvision()
    from torchvision import datasets

    return datasets


def _published(dataset: str, split: str) -> tuple[Published, dict[str, str]]:
    """Name where torchvision gets `dataset`, and files and checksums of `split`, train or test."""
    source = getattr(_datasets(), dataset.upper())
    if dataset == "svhn":
        url, name, md5 = source.split_list[split]
        return Published(dataset, url, md5, (name,)), {name: md5}
    listed = source.train_list if split == "train" else source.test_list
    files = {f"{source.base_folder}/{name}": md5 for name, md5 in listed}
    needed = (*files, f"{source.base_folder}/{source.meta['filename']}")
    return Published(dataset, source.url, source.tgz_md5, needed), files


def _parse(dataset: str, folder: Path, name: str, split: str) -> tuple[Pixels, list[int]]:
    """Read images [n, 3, 32, 32] and labels of a file, calling nothing in it; or raise UsageError.

    No checksum is demanded: a part of a data set, or one's own in the same format, is read too.
    """
    path = folder / name
    try:
        with warnings.catch_warnings():
            # the parsers' remarks on old or broken files; what came of it is checked below
            warnings.simplefilter("ignore")
            pixels, labels = _parse_svhn(folder, split) if dataset == "svhn" else _parse_cifar(path)
    except Exception as error:  # a broken file makes pickle, zlib and scipy raise almost anything
        raise _corrupt(dataset, path, _one_line(error)) from None
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (3, 32, 32) or len(pixels) == 0:
        images = f"{pixels.dtype} {list(pixels.shape)}"
        raise _corrupt(dataset, path, f"its images are {images}, not uint8 [n, 3, 32, 32]")
    if len(pixels) != len(labels):
        raise _corrupt(dataset, path, f"it holds {len(pixels)} images and {len(labels)} labels")
    classes = ON_DISK[dataset].classes
    if not all(0 <= label < classes for label in labels):
        raise _corrupt(dataset, path, f"it holds labels other than 0 to {classes - 1}")
    return pixels, labels


def _parse_svhn(folder: Path, split: str) -> tuple[Pixels, list[int]]:
    """Read SVHN by scipy: in MATLAB's format nothing can be called."""
    svhn = _datasets().SVHN
    url, name, _ = svhn.split_list[split]
    unchecked = {split: [url, name, None]}
    parsed = type("SVHN", (svhn,), {"split_list": unchecked})(folder, split)
    return np.ascontiguousarray(parsed.data), np.atleast_1d(parsed.labels).tolist()


def _parse_cifar(path: Path) -> tuple[Pixels, list[int]]:
    """Read CIFAR without torchvision, which unpickles the file and so runs what it holds."""
    table = pickled.read(path)
    labels = table["labels"] if "labels" in table else table["fine_labels"]
    return table["data"].reshape(-1, 3, 32, 32), [index(label) for label in labels]


def _corrupt(dataset: str, path: Path, reason: str) -> UsageError:
    wrong = f"dataset={dataset}: {path} is truncated or corrupt ({reason})"
    return UsageError(f"{wrong}; delete it, to have it downloaded again")


def _one_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
