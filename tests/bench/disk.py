"""Small data sets in the true formats, byte by byte and not by the readers' libraries."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.config import RunConfig

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def pixels(samples: int, seed: int = 0) -> Pixels:
    """Draw random images [samples, 3, 32, 32]."""
    return np.random.default_rng(seed).integers(0, 256, (samples, 3, 32, 32), dtype=np.uint8)


def config(dataset: str, folder: Path, **fields: object) -> RunConfig:
    base: dict[str, object] = {"dataset": dataset, "data_dir": folder}
    return RunConfig(**{**base, "batch_per_rank": 4, **fields})


# --- MATLAB 5 (.mat), after "MAT-File Format", MathWorks: SVHN


def _element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def _matrix(name: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """Encode a uint8 array; `data` is in column-major order, as MATLAB has it."""
    flags = _element(6, struct.pack("<II", 9, 0))  # mxUINT8_CLASS
    dimensions = _element(5, struct.pack(f"<{len(shape)}i", *shape))
    return _element(14, flags + dimensions + _element(1, name.encode()) + _element(2, data))


def mat_bytes(images: Pixels, labels: list[int], compressed: bool = True) -> bytes:
    """Encode SVHN's train_32x32.mat: X [32, 32, 3, n], y [n, 1]; a 0 is labelled 10."""
    n = len(images)
    # column-major [row, column, channel, n] runs through rows fastest: [n, channel, column, row] in
    # C order
    parts = [
        _matrix("X", (32, 32, 3, n), images.transpose(0, 1, 3, 2).tobytes()),
        _matrix("y", (n, 1), bytes(labels)),
    ]
    if compressed:
        squeezed = [zlib.compress(part) for part in parts]
        parts = [struct.pack("<II", 15, len(part)) + part for part in squeezed]
    header = b"MATLAB 5.0 MAT-file".ljust(116) + b"\0" * 8 + struct.pack("<H2s", 0x0100, b"IM")
    return header + b"".join(parts)


def write_svhn(folder: Path, images: Pixels, labels: list[int], compressed: bool = True) -> Path:
    path = folder / "train_32x32.mat"
    path.write_bytes(mat_bytes(images, labels, compressed))
    return path


# --- Python 2 pickles of protocol 2, opcode by opcode, as the CIFAR files are


def _string(text: bytes) -> bytes:
    short = len(text) < 256
    return (b"U" + bytes([len(text)]) if short else b"T" + struct.pack("<i", len(text))) + text


def _integers(values: list[int]) -> bytes:
    return b"](" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"e"


def _array(rows: Pixels) -> bytes:
    """Pickle a numpy array of bytes as numpy 1 pickled it under Python 2."""
    kind = b"cnumpy\ndtype\n" + _string(b"u1") + b"K\0K\x01\x87R" + b"(K\x03" + _string(b"|")
    kind += b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\0tb"
    shape = b"".join(b"J" + struct.pack("<i", edge) for edge in rows.shape) + b"\x86"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
    empty += _string(b"b") + b"\x87R"
    return empty + b"(K\x01" + shape + kind + b"\x89" + _string(rows.tobytes()) + b"tb"


def _pickle(entries: dict[bytes, bytes]) -> bytes:
    return b"\x80\x02}(" + b"".join(_string(key) + value for key, value in entries.items()) + b"u."


def cifar_bytes(images: Pixels, labels: list[int], key: bytes = b"labels") -> bytes:
    entries = {b"batch_label": _string(b"training"), key: _integers(labels)}
    return _pickle({**entries, b"data": _array(images.reshape(len(images), -1))})


def cifar_meta(key: bytes, classes: int) -> bytes:
    names = b"](" + b"".join(_string(b"class %d" % index) for index in range(classes)) + b"e"
    return _pickle({key: names, b"num_vis": b"K\x20"})


def write_cifar10(folder: Path, images: Pixels, labels: list[int]) -> list[Path]:
    """Write five training files of equal length, and no test images, which are not needed."""
    base, share = folder / "cifar-10-batches-py", len(images) // 5
    base.mkdir(parents=True)
    paths = [base / f"data_batch_{index + 1}" for index in range(5)]
    for index, path in enumerate(paths):
        part = slice(index * share, (index + 1) * share)
        path.write_bytes(cifar_bytes(images[part], labels[part]))
    (base / "batches.meta").write_bytes(cifar_meta(b"label_names", 10))
    return paths


def write_cifar100(folder: Path, images: Pixels, labels: list[int]) -> Path:
    base = folder / "cifar-100-python"
    base.mkdir(parents=True)
    (base / "train").write_bytes(cifar_bytes(images, labels, b"fine_labels"))
    (base / "meta").write_bytes(cifar_meta(b"fine_label_names", 100))
    return base / "train"


# --- a folder of JPEGs per class, as ImageNet's train/


def write_folder(folder: Path, per_class: int = 6) -> list[Path]:
    """Write two classes of images of several sizes."""
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
