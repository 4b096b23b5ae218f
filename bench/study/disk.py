"""Atomic writes and locks of files, for processes that share a folder."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import IO

from bench.config import UsageError


def write_whole(
    path: Path, data: bytes | str, cure: str = "make room, or choose another folder"
) -> Path:
    """Write a file atomically, and make its folder. No reader ever sees a part of the file.

    Returns `path`. If writing fails, raises UsageError with `cure` as its advice.
    """
    # not by the process's number: jobs on two nodes may have the same
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; {cure}") from None
    finally:
        with suppress(OSError):  # not there, or its folder is a file
            temporary.unlink()
    return path


def take_lock(file: IO[str], alone: bool) -> bool:
    """Acquire an exclusive (`alone`) or shared lock without waiting; return whether this worked.

    On a file system without locks, an exclusive call closes the file and raises UsageError, and a
    shared call returns True.
    """
    import fcntl  # here: Windows has none, where reports are read

    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # as NFS without its lock service
        if alone:
            file.close()
            why = f"takes no locks ({error.strerror}), so two jobs could run at once"
            cure = "choose --results on another"
            raise UsageError(f"{file.name}: this file system {why}; {cure}") from None
    return True
