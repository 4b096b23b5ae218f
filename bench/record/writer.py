"""Writer of a run log: one event a line, closed with digests that show a later change."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.config import UsageError

SEALED = ("end", "exit")  # events that carry a digest of all before them
_SEAL = b', "sha256": "'


def append(fd: int, path: Path, event: str, fields: Mapping[str, Any]) -> None:
    """Append one event as a line of its own, also after an incomplete line. Raises OSError."""
    size = os.fstat(fd).st_size
    torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    text = json.dumps(finite({"event": event, **fields}), allow_nan=False)
    line = b"\n" * torn + text.encode() + b"\n"
    if event in SEALED:
        line = seal(os.pread(fd, size, 0), line)  # what this rank and others have written so far
    try:
        while line:  # a disk that is nearly full takes a part
            line = line[os.write(fd, line) :]
        if event in SEALED:  # a network file system may say only now that it is full
            os.fsync(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def seal(before: bytes, line: bytes) -> bytes:
    """Return `line`, an `end` or `exit`, with a digest of itself and all bytes `before` it."""
    head = line.removesuffix(b"}\n")
    return head + _SEAL + hashlib.sha256(before + head).hexdigest().encode() + b'"}\n'


def finite(value: Any) -> Any:
    """Return `value` with 'nan', 'inf' and '-inf' in place of numbers that JSON does not have."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
    return value


def is_sealed(before: bytes, line: bytes) -> bool:
    """Return whether the digest in `line`, which follows the bytes `before`, is right."""
    head = line.rpartition(_SEAL)[0]
    return seal(before, head + b"}\n") == line.rstrip() + b"\n"


class RunLog:
    """Thread-safe writer of a new run log; without a path nothing is written.

    Events after `end` are dropped. Raises UsageError if the file exists or cannot be created.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.RLock()
        self._ended = False
        self._path = path
        self._fd = None if path is None else _create(path)

    def write(self, event: str, **fields: Any) -> None:
        """Add one event. Raises OSError, with the log's path, if writing fails."""
        with self._lock:
            if self._ended:
                return
            if self._fd is not None and self._path is not None:
                append(self._fd, self._path, event, fields)
            self._ended = event == "end"


def hold(fd: int) -> bool:
    """Lock an open log until it is closed; return False if it is locked or cannot be locked."""
    try:
        import fcntl  # not on Windows, where logs are only read

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def append_event(path: Path, event: str, **fields: Any) -> None:
    """Add one event to an existing log by its path, without its RunLog. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    try:
        append(fd, path, event, fields)
    finally:
        os.close(fd)


def _create(path: Path) -> int:
    setting, cure = f"log_path={str(path)!r}", "choose another name"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise UsageError(f"{setting} exists and is never overwritten; {cure}") from None
    except OSError as error:
        raise UsageError(f"{setting} cannot be written: {error.strerror}; {cure}") from None
    hold(fd)
    return fd
