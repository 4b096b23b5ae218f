"""Writing a run log: one event a line, by the run and by its launcher."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.record.sealed import append

_ROOM_BYTES = 1024  # of an `error` and an `end` that say why


class RunLog:
    """Writer of one run log; thread-safe. Ignores events after `end`, such as a late signal's."""

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.RLock()
        self._ended = False
        self._path = path
        self._fd = None if path is None else _create(path)

    def write(self, event: str, **fields: Any) -> None:
        """Add one event; raises OSError, with the path, if not all of it could be written."""
        with self._lock:
            if self._ended:
                return
            if self._fd is not None:
                assert self._path is not None
                append(self._fd, self._path, event, fields)
                if event == "end":
                    self._sync()
            self._ended = event == "end"

    def _sync(self) -> None:
        assert self._fd is not None
        try:
            os.fsync(self._fd)
        except OSError as error:  # a network file system may say only now that it is full
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def make_room(self) -> None:
        """Give up the last events, to record an end where the disk takes no more bytes."""
        with self._lock:
            if self._fd is None or self._ended:
                return
            size = os.fstat(self._fd).st_size
            head = os.pread(self._fd, max(size - _ROOM_BYTES, 0), 0)
            os.ftruncate(self._fd, head.rfind(b"\n") + 1)


def hold(fd: int) -> bool:
    """Lock an open log for as long as the process lives; false where another has, or cannot."""
    try:
        import fcntl  # not on Windows, where logs are only read

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def append_event(path: Path, event: str, **fields: Any) -> None:
    """Add one event to an existing log, for the launcher or a rank but 0. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    try:
        append(fd, path, event, fields)
    finally:
        os.close(fd)


def _create(path: Path) -> int:
    setting = f"log_path={str(path)!r}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise UsageError(f"{setting} {_in_the_way(path)}; choose another name") from None
    except OSError as error:
        cure = "choose another folder"
        raise UsageError(f"{setting} cannot be written: {error.strerror}; {cure}") from None
    hold(fd)
    return fd


def _in_the_way(path: Path) -> str:
    if path.is_dir():
        return "is a folder, not the name of a file"
    if path.is_file():
        return "exists and is never overwritten"
    if path.exists():
        return "is a device or a pipe, and a log is read back"
    if path.is_symlink():
        return f"is a link to {str(path.readlink())!r}, which is not there"
    return "cannot be written: a file is where its folder should be"
