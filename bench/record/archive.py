"""The logs of a study in one archive of its folder, read as if they lay in the folder."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from bench.config import UsageError

NAME = "logs.tar.gz"  # members are named from the study's folder on: runs/ID.jsonl


def contents(folder: Path) -> Mapping[str, bytes]:
    """Read each member of the folder's archive, by name; nothing where there is no archive.

    Raises UsageError where the archive is damaged, or no archive of files in one folder.
    """
    path = folder.absolute() / NAME
    return _members(path, path.stat().st_mtime_ns) if path.is_file() else {}


def holds(path: Path) -> bool:
    """Check whether FOLDER/KIND/NAME is there, as its own file or in the folder's archive."""
    return path.exists() or _archived(path) is not None


def read_file(path: Path) -> bytes:
    """Read FOLDER/KIND/NAME, from a file of its own or from the folder's archive.

    Raises OSError where it is in neither, UsageError where it is no regular file, or where both
    have it and differ.
    """
    archived = _archived(path)
    if archived is not None and not path.exists():
        return archived
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
        raise UsageError(f"{path}: no regular file; a run log is one")
    data = path.read_bytes()
    if archived not in (None, data):
        raise differs(path)
    return data


def size_bytes(path: Path) -> int:
    """Measure what `read_file` reads, in bytes. Raises OSError where there is nothing."""
    archived = _archived(path)
    return path.stat().st_size if archived is None else len(archived)


def logs_in(directory: Path, suffix: str = ".jsonl") -> list[Path]:
    """List every FOLDER/KIND/* of a suffix, sorted: files of their own and those in the archive."""
    kind = PurePosixPath(directory.name)
    members = map(PurePosixPath, contents(directory.parent))
    archived = {directory / m.name for m in members if m.parent == kind and m.suffix == suffix}
    return sorted(archived.union(directory.glob(f"*{suffix}")))


def differs(path: Path) -> UsageError:
    """Make the error for a file that is in the archive as well, with other contents."""
    return UsageError(f"{path} is another file in {NAME} beside it; remove one of the two")


def pack(files: Mapping[str, bytes], time: int) -> bytes:
    """Pack files by name in a tar.gz: sorted, of nobody, all of one time (seconds since 1970).

    The same files give the same bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), time
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def _archived(path: Path) -> bytes | None:
    return contents(path.parent.parent).get(f"{path.parent.name}/{path.name}")


@lru_cache(maxsize=4)  # a report asks for one log after the other
def _members(path: Path, modified_ns: int) -> Mapping[str, bytes]:
    """Read once, from its first byte to its last; `modified_ns` tells a new archive from this."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            return {_name(path, info): _data(tar, info) for info in tar if not info.isdir()}
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{path} cannot be unpacked ({error}); take it from a copy") from None


def _name(path: Path, info: tarfile.TarInfo) -> str:
    name = PurePosixPath(info.name)
    if not info.isfile() or name.is_absolute() or ".." in name.parts:
        rule = "is no regular file below the study's folder"
        raise UsageError(f"{path}: {info.name!r} {rule}; make the archive without it")
    return name.as_posix()


def _data(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(info)
    assert file is not None  # of a regular file
    return file.read()
