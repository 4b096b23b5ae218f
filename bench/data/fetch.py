"""Downloads a published data set once, however many ranks, nodes and launches want it."""

from __future__ import annotations

import fcntl
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.config import UsageError
from bench.models import import_torchvision

WAIT_S = 900.0  # for another rank's or launch's download
_SILENCE_S = 30.0  # a server that says nothing for so long is taken for absent
_POLL_S = 0.2


@dataclass(frozen=True)
class Published:
    """A published data set: one download, its checksum, and the files that it must yield."""

    dataset: str
    url: str
    md5: str
    files: tuple[str, ...]

    @property
    def filename(self) -> str:
        """The name under which the download is kept."""
        return self.url.rsplit("/", 1)[1]

    @property
    def unpacks(self) -> bool:
        """Whether the download is an archive of the files rather than the file itself."""
        return self.filename not in self.files

    def missing(self, folder: Path) -> list[str]:
        """The files that are not in `folder`; a file is renamed into place, so it is whole."""
        try:
            return [name for name in self.files if not (folder / name).is_file()]
        except OSError as error:  # a folder of somebody else
            raise UsageError(
                f"data_dir={str(folder)!r} cannot be read: {error.strerror}; choose another "
                f"--data-dir"
            ) from None

    def instruction(self, folder: Path) -> str:
        """What to do by hand."""
        what = f"unpack {self.url} in" if self.unpacks else f"put {self.url} into"
        return f"{what} {folder}, so that {folder / self.missing(folder)[0]} is there"


def provide(
    source: Published, folder: Path, download: bool, local_rank: int, wait_s: float = WAIT_S
) -> None:
    """Return when all files are in `folder`: local rank 0 downloads, the node's others wait.

    Raises UsageError, with what to put where, if they cannot be had.
    """
    if not source.missing(folder):
        return  # a folder that is complete is never written to: it may be read-only
    if not download:
        raise UsageError(
            f"dataset={source.dataset} is not in data_dir and download=False: "
            f"{source.instruction(folder)}"
        )
    if local_rank:
        _wait(source, folder, wait_s)
        return
    # torchvision, tarfile and urllib raise what they like; the way out is the same
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f".{source.dataset}.lock", wait_s):
            if source.missing(folder):  # another launch may have brought them while this one waited
                _download(source, folder)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise UsageError(
            f"dataset={source.dataset} is not in data_dir and cannot be downloaded ({reason}): "
            f"{source.instruction(folder)}"
        ) from None


def _wait(source: Published, folder: Path, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while source.missing(folder):
        if time.monotonic() > end:
            raise UsageError(
                f"dataset={source.dataset}: local rank 0 did not bring {source.missing(folder)[0]} "
                f"within {wait_s:g} s: {source.instruction(folder)}"
            )
        time.sleep(_POLL_S)


@contextmanager
def _locked(path: Path, wait_s: float) -> Iterator[None]:
    """Holds an flock, which ends with its process; the file itself is left behind."""
    end = time.monotonic() + wait_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"{path} was held by another launch for {wait_s:g} s"
                    ) from None
                time.sleep(_POLL_S)
        yield


def _download(source: Published, folder: Path) -> None:
    """torchvision's downloader, which compares the checksum, into a folder beside.

    Then each file is renamed into place.
    """
    import_torchvision()
    from torchvision.datasets.utils import download_and_extract_archive, download_url

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{source.dataset}-") as beside:
            if source.unpacks:  # an archive that the user has put into the folder is used
                download_and_extract_archive(
                    source.url, folder, beside, source.filename, source.md5
                )
            else:
                download_url(source.url, beside, source.filename, source.md5)
            for name in source.missing(folder):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(beside) / name).rename(folder / name)
    finally:
        socket.setdefaulttimeout(before)
