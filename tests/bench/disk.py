"""Small data sets in the published formats, whose checksums torchvision takes for its own."""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from bench.config import RunConfig
from bench.data.dataset import import_torchvision

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
LABELS = [index % 10 for index in range(20)]  # of what is trained on
TEST_LABELS = [9, 3, 5]
PARTS = {"cifar10": [f"data_batch_{n}" for n in range(1, 6)], "cifar100": ["train"]}
PUBLISHED = ("svhn", *PARTS)


def pixels(samples: int, seed: int = 0) -> Pixels:
    """Draw random images [samples, 3, 32, 32]."""
    return np.random.default_rng(seed).integers(0, 256, (samples, 3, 32, 32), dtype=np.uint8)


def config(dataset: str, folder: Path, **fields: object) -> RunConfig:
    base: dict[str, object] = {"dataset": dataset, "data_dir": folder}
    return RunConfig(**{**base, "batch_per_rank": 4, **fields})


def _mat(images: Pixels, labels: list[int]) -> bytes:
    """Encode SVHN's X [32, 32, 3, n] and y [n, 1]; a 0 is labelled 10."""
    numbers = np.array([[label or 10] for label in labels], np.uint8)
    file: Any = io.BytesIO()
    savemat(file, {"X": images.transpose(2, 3, 1, 0), "y": numbers})
    content: bytes = file.getvalue()
    return content


def _cifar(images: Pixels, labels: list[int], key: str) -> bytes:
    return pickle.dumps({"data": images.reshape(len(images), -1), key: labels}, 2)


def publish(dataset: str, folder: Path, patch: pytest.MonkeyPatch) -> list[Path]:
    """Write twenty images to train on and three held out; make torchvision know their checksums.

    Return the files: those to train on first.
    """
    trained, judged = pixels(20), pixels(3, seed=1)
    source: Any = getattr(import_torchvision().datasets, dataset.upper())
    if dataset == "svhn":
        contents = {"train_32x32.mat": _mat(trained, LABELS)}
        contents["test_32x32.mat"] = _mat(judged, TEST_LABELS)
    else:
        key = "labels" if dataset == "cifar10" else "fine_labels"
        names = PARTS[dataset]
        size = 20 // len(names)
        contents = {
            f"{source.base_folder}/{name}": _cifar(
                trained[at : at + size], LABELS[at : at + size], key
            )
            for name, at in zip(names, range(0, 20, size), strict=True)
        }
        of_test = f"{source.base_folder}/{source.test_list[0][0]}"
        contents[of_test] = _cifar(judged, TEST_LABELS, key)
        meta = pickle.dumps({source.meta["key"]: [str(n) for n in range(100)]}, 2)
        contents[f"{source.base_folder}/{source.meta['filename']}"] = meta
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    sums = [hashlib.md5(content).hexdigest() for content in contents.values()]
    if dataset == "svhn":
        urls = [source.split_list[part][0] for part in ("train", "test")]
        listed = zip(("train", "test"), zip(urls, contents, sums, strict=True), strict=True)
        patch.setattr(source, "split_list", {**source.split_list, **dict(listed)})
    else:
        each = [[Path(name).name, md5] for name, md5 in zip(contents, sums, strict=True)]
        patch.setattr(source, "train_list", each[:-2])
        patch.setattr(source, "test_list", each[-2:-1])
        patch.setattr(source, "meta", {**source.meta, "md5": sums[-1]})
    return [folder / name for name in contents]


def write_folder(folder: Path, per_class: int = 6) -> list[Path]:
    """Write two classes of images of several sizes, as ImageNet's train/."""
    paths = []
    for label, name in enumerate(("n01440764", "n01443537")):
        (folder / name).mkdir(parents=True)
        for index in range(per_class):
            size = (40 + 5 * index, 60 - 3 * index + label)
            random, shape = np.random.default_rng([label, index]), (*size[::-1], 3)
            noise = random.integers(0, 256, shape, dtype=np.uint8)
            paths.append(folder / name / f"{name}_{index}.JPEG")
            Image.fromarray(noise).save(paths[-1], quality=90)
    return paths
