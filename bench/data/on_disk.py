"""Data sets that torchvision reads from disk: SVHN and CIFAR whole, image folders file by file.

Their augmentation is a function of seed, epoch and sample alone.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate
from torch.utils.data import Dataset

from bench.config import ON_DISK, RunConfig, UsageError
from bench.config.fields import PADDING, OnDisk
from bench.data.custom import Own
from bench.data.dataset import KEY, Batch, image_dtype, import_torchvision

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
# at import, because a loading process unpickles torchvision's transforms
_TORCHVISION = import_torchvision()


class Arrays(Dataset[Batch]):
    """SVHN or CIFAR in memory: `pixels` uint8 [n, 3, 32, 32], and batches as normalised floats."""

    def __init__(self, config: RunConfig, published: Any, augmented: bool) -> None:
        if config.dataset == "svhn":
            pixels, labels = published.data, published.labels
        else:
            pixels, labels = published.data.transpose(0, 3, 1, 2), published.targets
        # tensors, because loading processes then share this memory instead of each having a copy
        self.pixels = torch.from_numpy(np.ascontiguousarray(pixels))
        self.labels = torch.as_tensor(labels, dtype=torch.int64)
        self._facts, self._augmented = ON_DISK[config.dataset], augmented
        self.classes, self.samples = self._facts.classes, len(labels)
        self._dtype, self._size, self._seed = image_dtype(config), config.image_size, config.seed

    def __getitems__(self, indices: list[int]) -> Batch:
        chosen = self.pixels.numpy()[indices]
        if self._augmented:
            epoch = getattr(indices, "epoch", 0)
            crops = epoch_crops(self._seed, epoch, self.samples, self._facts.flips)
            chosen = crop_and_flip(chosen, crops[indices])
        images = _normalise(torch.from_numpy(chosen), self._facts, self._dtype)
        if (size := (self._size, self._size)) != images.shape[2:]:
            images = interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)
        return images, self.labels[indices]


def _normalise(pixels: torch.Tensor, dataset: OnDisk, dtype: torch.dtype) -> torch.Tensor:
    """Return uint8 `pixels` [n, 3, h, w] as floats, normalised by the data set's mean and std."""
    mean_and_std = torch.tensor([dataset.mean, dataset.std], dtype=dtype).reshape(2, 3, 1, 1) * 255
    return pixels.to(dtype).sub_(mean_and_std[0]).div_(mean_and_std[1])


@lru_cache(maxsize=1)
def epoch_crops(seed: int, epoch: int, samples: int, flips: bool) -> Pixels:
    """Draw an epoch's crops, uint8 [samples, 3]. A row is (top, left, 1 if mirrored else 0)."""
    ends = [2 * PADDING + 1, 2 * PADDING + 1, 2 if flips else 1]
    random = np.random.default_rng([KEY, seed, epoch])
    return random.integers(ends, size=(samples, 3), dtype=np.uint8)


def crop_and_flip(pixels: Pixels, rows: Pixels) -> Pixels:
    """Pad images [n, 3, h, w] with black; crop and mirror each by its row of `epoch_crops`."""
    height, width = pixels.shape[2:]
    padded = np.pad(pixels, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    # all crops, none copied yet
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    down, right, mirrored = rows.T
    cropped: Pixels = windows[np.arange(len(pixels)), :, down, right]
    mirror = mirrored.astype(bool)
    cropped[mirror] = cropped[mirror, :, :, ::-1]
    return cropped


def image_folder(config: RunConfig, folder: Path, augmented: bool) -> Own:
    """Return images from `folder`, which has a folder of files per class, like ImageNet's train/.

    Files are decoded at each access. Raises UsageError if `folder` is no such folder.
    """
    transforms, size, facts = _TORCHVISION.transforms, config.image_size, ON_DISK["imagefolder"]
    if augmented:
        steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
    else:
        steps = [transforms.Resize(round(size * 256 / 224)), transforms.CenterCrop(size)]
    steps += [transforms.PILToTensor(), transforms.ConvertImageDtype(image_dtype(config))]
    steps += [transforms.Normalize(facts.mean, facts.std)]
    try:
        listing = _TORCHVISION.datasets.ImageFolder(
            folder, transforms.Compose(steps), loader=_decode
        )
    # no folder, no class in it, or a class without an image; torchvision says which
    except OSError as error:
        wrong = f"dataset=imagefolder, data_dir={folder}: {error}"
        raise UsageError(f"{wrong}; it must hold a folder of images per class") from None
    if "train" in listing.classes and set(listing.classes) <= {"train", "val", "test"}:
        wrong = f"data_dir={folder} holds {', '.join(listing.classes)} rather than classes"
        raise UsageError(f"{wrong}; use {folder / 'train'}")
    images, classes = Own(config, listing), [folder / name for name in listing.classes]
    if not any(Path(path).parent in classes for path, _ in listing.samples):
        lacks = f"its classes ({', '.join(listing.classes[:4])}) hold no image of their own"
        images.doubt = f"data_dir={folder}: {lacks}, but folders; is it one level too high?"
    return images


def _decode(path: str) -> Image.Image:
    """Decode an image file to 8-bit RGB. Raises UsageError with its path if decoding fails."""
    try:
        with Image.open(path) as image:
            if image.mode.startswith("I;16"):  # Pillow would cut these pixels off at 255
                return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
            if image.mode not in ("I", "F"):
                return image.convert("RGB")
            reason = f"pixels of mode {image.mode}, whose range is not known; use 8 or 16 bits"
    except Exception as error:  # Pillow's decoders raise many kinds; all of them mean this file
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    wrong = f"{path} is no readable image ({reason})"
    raise UsageError(f"{wrong}; replace or remove it")


def load(config: RunConfig, held_out: bool = False) -> Arrays | Own:
    """Load the data set in config.data_dir, or with `held_out` its test samples.

    Raises UsageError if files are missing or unfit, or are not the published ones.
    """
    assert config.data_dir is not None, "the rules demand it"
    folder, augmented = config.data_dir.expanduser(), not held_out
    if config.dataset != "imagefolder":
        with warnings.catch_warnings():  # numpy's, of files that its first versions wrote
            warnings.simplefilter("ignore")
            return Arrays(config, _published(config, folder, held_out), augmented)
    trained = image_folder(config, folder, augmented)
    if not held_out:
        return trained
    beside = folder.resolve().parent / "val"  # as ImageNet's beside its train/
    if beside.resolve() == folder.resolve():
        wrong = f"data_dir={folder} is what a training is judged by"
        raise UsageError(f"{wrong}, so it cannot be trained on; use the train/ beside it")
    judged = image_folder(config, beside, False)
    if judged.names != trained.names:
        classes = f"{judged.classes} classes, other than the {trained.classes} of {folder}"
        raise UsageError(f"data_dir={beside} holds {classes}; give both the same folders")
    return judged


def _published(config: RunConfig, folder: Path, held_out: bool) -> Any:
    """Read a published data set. Raises UsageError if a file is missing or has changed."""
    name, part = config.dataset, "test" if held_out else "train"
    source = getattr(_TORCHVISION.datasets, name.upper())
    chosen = {"split": part} if name == "svhn" else {"train": not held_out}
    try:
        return source(folder, **chosen)  # no stranger's pickle: it checks the published sum first
    except (RuntimeError, OSError):
        url = source.split_list[part][0] if name == "svhn" else source.url
        cure = f"put {url} into it{'' if name == 'svhn' else ', and unpack it there'}"
        wrong = f"dataset={name}: its {part} part, as it was published, is not in data_dir={folder}"
        raise UsageError(f"{wrong}; {cure}") from None
