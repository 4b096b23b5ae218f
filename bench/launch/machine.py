"""This machine: its fitness for a run, malloc's settings, clock ticks, GPUs and network."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bench import checkout
from bench.backends.catalogue import interface_variables
from bench.config import RunConfig, UsageError

_STAT = Path("/proc/stat")
# By default glibc gives freed memory back to the kernel in some processes and not in others: it
# depends on the order of their first large allocations. The former fault it in again in every step.
_THRESHOLDS = {  # as mallopt(3) numbers them; bytes
    "trim_threshold": (-1, 2**30),
    "mmap_threshold": (-3, 2**25),  # the most that glibc takes
}
_USERS_OWN = ("MALLOC_", "GLIBC_TUNABLES")  # variables by which a user sets the same
_SMI_LIMIT_S = 20.0

LOOPBACK = "lo"
_TCP_INFO_BYTES = 136
_COUNTERS = 120  # offset of tcpi_bytes_acked and tcpi_bytes_received in linux/tcp.h, from Linux 4.1

_outcome = "left alone: not asked for"


def require_fit(config: RunConfig, env: Mapping[str, str]) -> None:
    """Raise UsageError if torch is missing, or if the run uses Gloo on unusable interfaces."""
    if importlib.util.find_spec("torch") is None:
        cure = "run make setup, then . .venv/bin/activate"
        if checkout() is None:
            cure = "pip install torch torchvision, or run make setup, which builds all backends"
        raise UsageError(f"{sys.executable} has no torch, which a run needs; {cure}")
    if config.transport in ("gloo", "nccl"):  # over NCCL both frameworks meet through Gloo
        require_interface(env, [name for _, name in socket.if_nameindex()])


def require_interface(env: Mapping[str, str], existing: Sequence[str]) -> None:
    """Raise UsageError if `env` gives Gloo an interface not in `existing`, or two interfaces."""
    interfaces = {name: env[name] for name in interface_variables() if env.get(name)}
    for name, value in interfaces.items():
        if value not in existing:
            # torch's Gloo would use all of a list, Horovod's takes none
            cure = f"unset it, or name one of {', '.join(existing)}"
            raise UsageError(f"{name}={value!r} names no interface of this host; {cure}")
    if len({*interfaces.values()}) > 1:
        settings = " and ".join(f"{name}={value!r}" for name, value in interfaces.items())
        raise UsageError(f"{settings} are two wires, which no comparison spans; unset one of them")


def keep_freed(env: Mapping[str, str]) -> None:
    """Have glibc keep freed memory, unless `env` sets malloc's options; call before torch loads."""
    global _outcome
    if user_variables := sorted(name for name in env if name.startswith(_USERS_OWN)):
        _outcome = f"left alone: {', '.join(user_variables)} set"
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)  # which musl has not
    refused = [name for name, words in _THRESHOLDS.items() if mallopt(*words) != 1]
    set_to = " ".join(f"{name}={size}" for name, (_, size) in _THRESHOLDS.items())
    _outcome = f"left alone: the C library refused {', '.join(refused)}" if refused else set_to


def kept() -> str:
    """Return the malloc thresholds that `keep_freed` set, as 'name=bytes', or why it did not."""
    return _outcome


class Ticks(NamedTuple):
    """Clock ticks since the machine started, summed over cores."""

    worked: int  # by any process
    interrupted: int  # by interrupts, which belong to no process
    stolen: int  # by a hypervisor, for its other guests
    idle: int


def core_ticks() -> Ticks | None:
    """Sum the ticks of the cores that this process may use; None if /proc/stat lacks a core."""
    return _read_ticks({f"cpu{core}" for core in os.sched_getaffinity(0)})


def node_ticks() -> Ticks | None:
    """Sum the ticks of all cores; None if /proc/stat lacks them."""
    return _read_ticks({"cpu"})


def _read_ticks(names: Collection[str]) -> Ticks | None:
    """Sum the ticks in the lines `names` of /proc/stat ('cpu3'); None if a line is missing."""
    with suppress(OSError):
        rows = [line.split() for line in _STAT.read_text().splitlines()]
        rows = [row for row in rows if row[0] in names]
        if len(rows) == len(names):
            # the columns after the first eight, of guests, are part of these
            user, nice, system, idle, wait, interrupt, soft, steal = (
                sum(int(row[column]) for row in rows) for column in range(1, 9)
            )
            return Ticks(user + nice + system, interrupt + soft, steal, idle + wait)
    return None


def busy_share(before: Ticks | None, after: Ticks | None) -> float | None:
    """Return the busy share between two readings, 0 to 1; None if one is None or no tick passed."""
    if before is None or after is None or sum(after) <= sum(before):
        return None
    return min(1.0, max(0.0, 1 - (after.idle - before.idle) / (sum(after) - sum(before))))


def family_ticks(process: int) -> int:
    """Count the clock ticks that a process and all its descendants have spent so far."""
    spent, family = 0, [str(process)]
    for pid in family:
        with suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent += sum(map(int, fields[11:15]))  # user and system, and of children that ended
            for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
                family += tasks.read_text().split()
    return spent


def share_of_others(busy: int, idle: int, stolen: int, run_ticks: int) -> float:
    """Return the share of a node's clock ticks that other processes and virtual machines took.

    `busy`, `idle` and `stolen` are the node's ticks, `run_ticks` those of the run's processes. The
    kernel samples `busy`, but measures `run_ticks` exactly. So threads that wake often and briefly,
    as Gloo's do, can raise `run_ticks` above `busy`; then only `stolen` counts as others'.
    """
    return (max(0, busy - run_ticks) + stolen) / max(1, busy + idle + stolen)


def others_now(seconds: float) -> float | None:
    """Measure others' share of this machine for `seconds`; None if /proc/stat does not tell."""
    before, ticks = node_ticks(), family_ticks(os.getpid())
    time.sleep(seconds)
    after = node_ticks()
    if before is None or after is None:
        return None
    busy, _, stolen, idle = (now - then for now, then in zip(after, before, strict=True))
    return share_of_others(busy, idle, stolen, family_ticks(os.getpid()) - ticks)


def gpu_of_one_process(env: Mapping[str, str]) -> bool:
    """Check whether a GPU here is limited to one process; False under MPS or without nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader"]
    how = {"capture_output": True, "text": True, "timeout": _SMI_LIMIT_S, "check": True}
    try:
        modes = str(subprocess.run(command, env=env, **how).stdout)  # type: ignore[call-overload]
    except (OSError, subprocess.SubprocessError):
        return False
    # MPS's daemon shares a GPU between processes
    mps = Path(env.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")) / "control"
    return "Exclusive_Process" in modes and not mps.exists()


def tcp_bytes(before: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """Count the bytes that this process's open TCP connections sent and received, by interface.

    `before`, the result of an earlier call, is subtracted. Connections within this host count as
    loopback. Shared memory and RDMA do not count. An address without an interface is counted under
    the address.
    """
    interfaces = interfaces_by_address()
    moved: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile, or not connected
            if not entry.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                ends = connection.getsockname(), connection.getpeername()
                local, remote = (_plain(end[0]) for end in ends)
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                interface = LOOPBACK if remote in interfaces else interfaces.get(local, local)
                moved[interface] += sum(struct.unpack_from("QQ", info, _COUNTERS))
    moved.subtract(before)
    return {name: count for name, count in sorted(moved.items()) if count > 0}


def interfaces_by_address() -> dict[str, str]:
    """Map each address of this host to its interface."""
    import psutil  # here: a login node or a laptop reads no wire

    interfaces = psutil.net_if_addrs().items()
    return {_plain(one.address): name for name, addresses in interfaces for one in addresses}


def host_name_interface() -> str:
    """Name the interface whose address this host's name resolves to; '' if no interface has it."""
    interfaces = interfaces_by_address()
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None):
            name = _plain(str(address[0]))
            if name in interfaces or name.startswith("127."):
                return interfaces.get(name, LOOPBACK)
    return ""


def _plain(address: str) -> str:
    """Return an address without the prefix '::ffff:' (IPv4 in IPv6) and without a scope."""
    return address.removeprefix("::ffff:").partition("%")[0]
