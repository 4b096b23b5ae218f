"""Archive of a study's logs in the study's folder; logs are read as if they were still files."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from bench.config import UsageError

NAME = "logs.tar.gz"  # members are named from the study's folder on: runs/ID.jsonl


def contents(folder: Path) -> Mapping[str, bytes]:
    """Read each file of the archive `folder`/logs.tar.gz; return {} if there is none.

    Keys are relative to the folder, as 'runs/ID.jsonl'. Raises UsageError for a damaged archive.
    """
    path = folder.absolute() / NAME
    return _members(path, path.stat().st_mtime_ns) if path.is_file() else {}


def holds(path: Path) -> bool:
    """Return whether `path`, FOLDER/KIND/NAME, exists as a file or in FOLDER's archive."""
    return path.exists() or f"{path.parent.name}/{path.name}" in contents(path.parent.parent)


def read_file(path: Path) -> bytes:
    """Read FOLDER/KIND/NAME, or its archived copy. Raises OSError; UsageError for a bad archive."""
    packed = contents(path.parent.parent).get(f"{path.parent.name}/{path.name}")
    return path.read_bytes() if packed is None or path.exists() else packed


def logs_in(directory: Path, suffix: str = ".jsonl") -> list[Path]:
    """List the sorted paths in FOLDER/KIND that end in `suffix`, also those in FOLDER's archive."""
    members = map(PurePosixPath, contents(directory.parent))
    packed = (m.name for m in members if str(m.parent) == directory.name and m.suffix == suffix)
    return sorted({directory / name for name in packed}.union(directory.glob(f"*{suffix}")))


def pack(files: Mapping[str, bytes], time: int) -> bytes:
    """Return a tar.gz of `files` (content by name), sorted, without owners, modified at `time`.

    `time` is in seconds since 1970. The same files and time give the same bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), time
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


@lru_cache(maxsize=4)  # a report asks for one log after the other
def _members(path: Path, _modified_ns: int) -> Mapping[str, bytes]:
    """Read all files of an archive; `_modified_ns` makes the cache notice a changed archive."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            files = ((info.name, tar.extractfile(info)) for info in tar)
            return {PurePosixPath(name).as_posix(): file.read() for name, file in files if file}
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{path} cannot be unpacked ({error}); take it from a copy") from None
