"""A rank's loading processes: they end with it, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from bench.lifecycle.peers import loading_processes

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def _follow(parent: int) -> None:
    """Let the kernel end this process when its parent ends, which may have happened already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Parent:
    """Becomes a call of `_follow` in the process that it is sent to."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _follow, (os.getpid(),)


class _Process(SpawnProcess):
    """Follows its parent before it imports what it is to run, which takes seconds, or hangs.

    torch's own watch begins after the imports, and takes whoever adopts orphans for the parent.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {"_follows": _Parent(), **self.__dict__}  # unpacked in this order


class Context(SpawnContext):
    """How loading processes start: fork after MPI or Horovod has started threads is undefined."""

    Process = _Process


def stop() -> None:
    """End this rank's loading processes; needs no lock, as any thread may be the last."""
    for child in loading_processes():
        child.kill()
