"""Fetching: from a real server, once, whoever asks; without one, what to put where."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from bench.config import UsageError
from bench.data import load_images
from bench.data.fetch import Published, provide
from bench.data.on_disk import Arrays
from tests.bench import disk

NAME = "cifar-100-python"
FILES = (f"{NAME}/train", f"{NAME}/meta")


class _Handler(SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, format: str, *args: object) -> None:
        self.asked.append(self.path)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def source(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Published]:
    """Serve a CIFAR-100 of 20 images as the archive it is published as."""
    monkeypatch.setenv("no_proxy", "*")
    (served := tmp_path / "served").mkdir()
    with tarfile.open(served / f"{NAME}.tar.gz", "w:gz") as archive:
        train = disk.cifar_bytes(disk.pixels(20), list(range(20)), b"fine_labels")
        meta = disk.cifar_meta(b"fine_label_names", 100)
        for name, content in zip(FILES, (train, meta), strict=True):
            (info := tarfile.TarInfo(name)).size = len(content)
            archive.addfile(info, io.BytesIO(content))
    md5 = hashlib.md5((served / f"{NAME}.tar.gz").read_bytes()).hexdigest()
    handler = type("Handler", (_Handler,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=served)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/{NAME}.tar.gz"
        yield Published("cifar100", url, md5, FILES)
        server.shutdown()
        thread.join()


def absent(source: Published) -> Published:
    """Name the same data set where nobody listens: at port 1."""
    return Published(source.dataset, f"http://127.0.0.1:1/{NAME}.tar.gz", source.md5, source.files)


def test_what_was_fetched_is_what_was_published(
    source: Published, asked: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "sets"
    provide(source, folder)
    images = load_images(disk.config("cifar100", folder))
    assert isinstance(images, Arrays)
    assert np.array_equal(images.pixels.numpy(), disk.pixels(20))
    left = {path.name for path in folder.iterdir()}
    assert left == {NAME, f"{NAME}.tar.gz", ".cifar100.lock"}, "nothing half-done stays behind"
    before, once = sorted(folder.rglob("*")), len(asked)
    provide(source, folder)
    assert sorted(folder.rglob("*")) == before
    assert len(asked) == once, "a complete folder is neither written to nor asked for"


def test_launches_and_ranks_fetch_once(source: Published, asked: list[str], tmp_path: Path) -> None:
    provide(source, tmp_path / "alone")
    once = len(asked)
    # an flock is held by an open file, so that threads shut each other out as processes do
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(provide, source, tmp_path / "shared", 30.0) for _ in range(6)]
        for call in calls:
            call.result()
    assert len(asked) == 2 * once
    assert not source.missing(tmp_path / "shared")


def test_an_archive_put_there_by_hand_needs_no_network(source: Published, tmp_path: Path) -> None:
    (folder := tmp_path / "data").mkdir()
    (tmp_path / "served" / source.filename).rename(folder / source.filename)
    provide(absent(source), folder)
    assert not source.missing(folder)


def test_without_network_the_line_says_what_to_put_where(source: Published, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        provide(absent(source), tmp_path / "data")
    line = str(caught.value)
    place = str(tmp_path / "data" / FILES[0])
    for words in ("cannot be downloaded", "Connection refused", absent(source).url, place):
        assert words in line
    assert "\n" not in line


def test_a_download_is_held_against_its_checksum(source: Published, tmp_path: Path) -> None:
    other = Published(source.dataset, source.url, "0" * 32, source.files)
    with pytest.raises(UsageError, match="cannot be downloaded"):
        provide(other, tmp_path / "data")
    assert not (tmp_path / "data" / NAME).exists()
