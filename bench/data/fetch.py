"""Downloads a published data set once, however many ranks, nodes and launches want it."""

from __future__ import annotations

import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from bench.config import UsageError
from bench.models import import_torchvision

WAIT_S = 900.0  # for another rank's or launch's download
_SILENCE_S = 30.0  # after which a silent server counts as absent


@dataclass(frozen=True)
class Published:
    """A published data set: one download, its checksum, and the files that it must yield."""

    dataset: str
    url: str
    md5: str
    files: tuple[str, ...]

    @property
    def filename(self) -> str:
        return self.url.rsplit("/", 1)[1]

    @property
    def unpacks(self) -> bool:
        """Whether the download is an archive of the files rather than the file itself."""
        return self.filename not in self.files

    def missing(self, folder: Path) -> list[str]:
        """List the files not in `folder`; a file is renamed into place, so it is whole."""
        try:
            return [name for name in self.files if not (folder / name).is_file()]
        except OSError as error:  # such as another user's folder
            wrong = f"data_dir={str(folder)!r} cannot be read: {error.strerror}"
            raise UsageError(f"{wrong}; choose another --data-dir") from None

    def instruction(self, folder: Path) -> str:
        """Tell the user what to put where, so that the files are found."""
        action = f"unpack {self.url} in" if self.unpacks else f"put {self.url} into"
        return f"{action} {folder}, so that {folder / self.missing(folder)[0]} is there"


def provide(source: Published, folder: Path, wait_s: float = WAIT_S) -> None:
    """Return when all files are in `folder`. Raises UsageError with what to put where otherwise."""
    if not source.missing(folder):
        return  # a folder that is complete is never written to: it may be read-only
    absent = f"dataset={source.dataset} is not in data_dir"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{source.dataset}.lock", timeout=wait_s):
            if source.missing(folder):  # another process may have brought them meanwhile
                _download(source, folder)
    except Exception as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, Timeout):
            reason = f"{error.lock_file} was held by another process for {wait_s:g} s"
        failed = f"{absent} and cannot be downloaded ({reason})"
        raise UsageError(f"{failed}: {source.instruction(folder)}") from None


def _download(source: Published, folder: Path) -> None:
    """Download with torchvision, which compares the checksum, into a folder beside; then rename."""
    import_torchvision()
    from torchvision.datasets.utils import download_and_extract_archive, download_url

    timeout_before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{source.dataset}-") as staging:
            file = source.filename, source.md5
            if source.unpacks:  # an archive that the user has put into the folder is used
                download_and_extract_archive(source.url, folder, staging, *file)
            else:
                download_url(source.url, staging, *file)
            for name in source.missing(folder):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(staging) / name).rename(folder / name)
    finally:
        socket.setdefaulttimeout(timeout_before)
