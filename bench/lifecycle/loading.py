"""A rank's loading processes: they end with it, and none of their names stay in /dev/shm.

multiprocessing gives semaphores names for processes that it spawns. It leaves their removal to the
rank's end or to a process of its own, which a launcher kills with the rank's process group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Container
from contextlib import suppress
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
    unlink_names()


def names() -> frozenset[Any]:
    """Keys of what is named by now; what a data set of the user's has named is among it."""
    return frozenset(_finalizers())


def unlink_names(kept: Container[Any] = ()) -> None:
    """Remove the semaphores' names, but for the keys `kept`; who has opened one still has it."""
    module = sys.modules.get("multiprocessing.synchronize")
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", 0)
    fd = getattr(tracker, "_fd", None)
    for key, finalizer in list(_finalizers().items()):
        if module is None or getattr(finalizer, "_callback", None) is not module.SemLock._cleanup:
            continue
        if key in kept or _finalizers().pop(key, None) is None:
            continue  # or another thread was faster
        (name,) = finalizer._args
        with suppress(OSError):
            module.sem_unlink(name)
        with suppress(OSError):  # the process that removes forgotten names may be gone
            if fd is not None:
                os.write(fd, f"UNREGISTER:{name}:semaphore\n".encode())


def _finalizers() -> dict[Any, Any]:
    """What multiprocessing does at the end; a name's removal is one of its calls."""
    return getattr(sys.modules.get("multiprocessing.util"), "_finalizer_registry", {})
