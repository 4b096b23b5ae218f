"""This machine before torch loads: whether it is fit for a run, and how it keeps memory."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import checkout
from bench.backends.catalogue import interface_variables
from bench.config import RunConfig, UsageError

# By default glibc gives freed memory back to the kernel in some processes and not in others: it
# depends on the order of their first large allocations. The former fault it in again in every step.
_THRESHOLDS = {  # as mallopt(3) numbers them; bytes
    "trim_threshold": (-1, 2**30),
    "mmap_threshold": (-3, 2**25),  # the most that glibc takes
}
_USERS_OWN = ("MALLOC_", "GLIBC_TUNABLES")  # variables by which a user sets the same

_outcome = "left alone: not asked for"


def require_fit(config: RunConfig, env: Mapping[str, str]) -> None:
    """Raise UsageError for what would fail later: no torch, no interface."""
    if importlib.util.find_spec("torch") is None:
        cure = "run make setup, then . .venv/bin/activate"
        if checkout() is None:
            cure = "pip install torch torchvision, or run make setup, which builds all backends"
        raise UsageError(f"{sys.executable} has no torch, which a run needs; {cure}")
    if config.transport in ("gloo", "nccl"):  # over NCCL both frameworks meet through Gloo
        require_interface(env, [name for _, name in socket.if_nameindex()])


def machine_bytes() -> int:
    """Find this machine's memory in bytes, or what a container, job or control group leaves."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *_group_limits(_read(Path("/proc/self/cgroup")), Path("/sys/fs/cgroup"))])


def _group_limits(groups: str, root: Path) -> list[int]:
    """List the limits of the control groups in /proc/self/cgroup and of all above, v1 and v2."""
    limits: list[int] = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, file = root / "memory", "memory.limit_in_bytes"
        if not controllers:
            base, file = root, "memory.max"
        group = base / path.lstrip("/")
        folders = [folder for folder in (group, *group.parents) if folder.is_relative_to(base)]
        texts = [_read(folder / file).strip() for folder in folders]
        limits += [int(text) for text in texts if text.isdecimal()]
    return limits


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def require_interface(env: Mapping[str, str], existing: Sequence[str]) -> None:
    """Raise UsageError where Gloo is told of an interface that this host lacks, for it would abort,
    or where two frameworks would be compared over two wires.
    """
    interfaces = {name: env[name] for name in interface_variables() if env.get(name)}
    for name, value in interfaces.items():
        if "," in value:  # torch's Gloo would use all of them, Horovod's takes no list
            several = (
                f"{name}={value!r} names several interfaces, and not every framework takes them"
            )
            raise UsageError(f"{several}; name one")
        if value not in existing:
            cure = f"unset it, or name one of {', '.join(existing)}"
            raise UsageError(f"{name}={value!r} names no interface of this host; {cure}")
    if len({*interfaces.values()}) > 1:
        settings = " and ".join(f"{name}={value!r}" for name, value in interfaces.items())
        raise UsageError(f"{settings} are two wires, which no comparison spans; unset one of them")


def keep_freed(env: Mapping[str, str]) -> None:
    """Set glibc's thresholds for this process, before torch loads, unless the user did."""
    global _outcome
    if user_variables := sorted(name for name in env if name.startswith(_USERS_OWN)):
        _outcome = f"left alone: {', '.join(user_variables)} set"
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        _outcome = "left alone: the C library is not glibc"
        return
    refused = [name for name, words in _THRESHOLDS.items() if libc.mallopt(*words) != 1]
    set_to = " ".join(f"{name}={size}" for name, (_, size) in _THRESHOLDS.items())
    _outcome = f"left alone: mallopt refused {', '.join(refused)}" if refused else set_to


def kept() -> str:
    """Tell the log what `keep_freed` did: 'trim_threshold=... mmap_threshold=...', or why not."""
    return _outcome
