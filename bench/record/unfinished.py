"""Renames a log without a result, so that its name is free; nothing of it is lost."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

from bench.config import UsageError
from bench.record import Run, read_run
from bench.record.writer import hold


def set_aside(path: Path) -> str | None:
    """Rename a log that no run writes any more and that has no result; returns what was done.

    None where there is no file, a result, or no log. Raises UsageError for a log whose run may
    still be at work: a run holds a lock on its log, which not every file system has.
    """
    if not path.is_file():  # a pipe would be waited for
        return None
    try:
        fd = os.open(path, os.O_RDWR)  # NFS locks no file that is only read
    except OSError:
        return None
    try:
        ended = hold(fd)
        run = read_run(path)
        if (reason := _lack(run, path)) is None:
            return None
        # not every file system's locks reach other hosts
        elsewhere = {*run.hosts} - {socket.gethostname()}
        if not ended or (elsewhere and not run.end):
            hosts = f" on {', '.join(run.hosts)}" if run.hosts else ""
            still = f"has no result yet, and its run{hosts} may still be at work"
            raise UsageError(f"log_path={str(path)!r} {still}; choose another name")
        names = (path.with_stem(f"{path.stem}.attempt-{n}") for n in itertools.count(1))
        free = next(name for name in names if not name.exists())
        path.rename(free)
        return f"{path} {reason}; it is now {free}"
    finally:
        os.close(fd)


def _lack(run: Run, path: Path) -> str | None:
    """Tell why a log is no result; None for a result or a file that is no log of this program."""
    if run.damage is not None or (not run.events and path.stat().st_size):
        return None
    if run.config is not None and run.config.study is not None:
        return None  # its driver sets attempts aside, and says what became of them
    if not run.end:
        return "is of a run that was ended before its end"
    if run.end["status"] == "ok" or run.windows:
        return None
    return f"is of a run that measured nothing ({run.problem})"
