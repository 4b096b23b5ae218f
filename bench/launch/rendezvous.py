"""Meeting of ranks without MPI, in a store: torchrun's own, or one that rank 0 opens.

Rank 0 lets the kernel pick the port, as one chosen in advance may be in use. It writes address and
port to a shared file, as a job's first host is not always rank 0's. The file's name has the
launch's key. Its nonce must be the store's, so that ranks never follow a file of an earlier launch.
In the store the ranks first compare their configurations.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist

from bench.config import RunConfig, UsageError
from bench.launch.provenance import disagreement, shared_fields
from bench.launch.world import Launch, WrongWorld, agent_store, meeting_folder
from bench.study.disk import write_whole

_T = TypeVar("_T")
_POLL_S = 0.05
_CURE = "use --log-path on shared storage, or a longer --stall-timeout-s"
MEETING_S = 60.0  # that ranks wait for one another at least
# launchers whose key is unique among simultaneous launches
_OWN_KEY = ("mpirun", "horovodrun", "srun", "pals")


def open_store(config: RunConfig, launch: Launch) -> dist.Store:
    """Open a store for all ranks. Raises UsageError if ranks are late or configured unequally."""
    store = _meet(config, launch)
    if problem := _compare(store, config, launch):
        raise UsageError(problem)
    return store


def _compare(store: dist.Store, config: RunConfig, launch: Launch) -> str:
    """Return how the ranks' configurations differ, '' if not at all; rank 0 compares them."""
    # torchrun's agent keeps one store for several runs of its ranks, so comparisons are numbered
    start = f"config/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    shared = dist.PrefixStore(f"{start}/{store.add(f'{start}/begun/{launch.rank}', 1)}", store)
    shared.set(str(launch.rank), json.dumps(shared_fields(config)))
    if launch.rank == 0:
        configs = [json.loads(shared.get(str(rank))) for rank in range(launch.size)]
        shared.set("problem", disagreement(configs) or "")
    problem = shared.get("problem").decode()
    shared.set(f"read/{launch.rank}", "")
    if problem and launch.rank == 0:  # the store ends with rank 0, so others read first
        with suppress(RuntimeError):  # of a rank that is gone
            shared.wait([f"read/{rank}" for rank in range(launch.size)])
    return problem


def _meet(config: RunConfig, launch: Launch) -> dist.Store:
    timeout_s = _patience_s(config)
    if agent_store(launch.source, os.environ):
        return _agents_store(timeout_s)
    if launch.size == 1:
        return dist.HashStore()
    folder = meeting_folder(launch, config.log_path)
    name = f"rendezvous.{launch.source}.{launch.key}"
    if launch.source not in _OWN_KEY or launch.key == "unnamed":  # then the run tells them apart
        name += "." + hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]
    return (_follow if launch.rank else _announce)(folder / f"{name}.json", launch, timeout_s)


def _patience_s(config: RunConfig) -> float:
    return max(MEETING_S, config.stall_timeout_s / 10)


def _poll(ask: Callable[[], _T | None], timeout_s: float) -> _T | None:
    """Call `ask` until it answers, and return the answer; None if no answer comes in time."""
    deadline = time.monotonic() + timeout_s
    while (answer := ask()) is None and time.monotonic() <= deadline:
        time.sleep(_POLL_S)
    return answer


def _agents_store(timeout_s: float) -> dist.Store:
    """Open the store of torchrun's agent. Raises WrongWorld if the store does not answer."""
    address, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))

    def listens() -> bool | None:
        try:
            socket.create_connection((address, port), timeout=1).close()
        except (OSError, OverflowError):
            return None
        return True

    with suppress(RuntimeError):  # torch's own errors of the network are kinds of it
        if _poll(listens, timeout_s):
            return dist.TCPStore(address, int(port), None, False, timedelta(seconds=timeout_s))
    raise WrongWorld(
        f"MASTER_ADDR={address!r} MASTER_PORT={port!r}: torchrun's store did not answer there "
        f"within {timeout_s:g} s; start through torchrun, or unset TORCHELASTIC_USE_AGENT_STORE"
    )


def host_address(launch: Launch) -> str:
    """Return this host's name for other ranks, or 127.0.0.1 if all ranks are on this host."""
    return "127.0.0.1" if launch.local_size == launch.size else socket.gethostname()


def _announce(path: Path, launch: Launch, timeout_s: float) -> dist.Store:
    address, nonce, timeout = host_address(launch), uuid.uuid4().hex, timedelta(seconds=timeout_s)
    store = dist.TCPStore(address, 0, launch.size, True, timeout, wait_for_workers=False)
    store.set("nonce", nonce)
    where = {"address": address, "port": store.port, "nonce": nonce}
    write_whole(path, json.dumps(where), cure="choose another --log-path")
    try:
        store.add("arrived", 1)
        if not _poll(lambda: store.add("arrived", 0) >= launch.size or None, timeout_s):
            raise WrongWorld(
                f"{store.add('arrived', 0)} of {launch.size} ranks appeared within {timeout_s:g} s;"
                " did all of them start, with the same options, and do they all see "
                f"{str(path.parent)!r}? {_CURE}"
            )
    finally:
        path.unlink(missing_ok=True)
    return store


def _follow(path: Path, launch: Launch, timeout_s: float) -> dist.Store:
    store = _poll(lambda: _try(path), timeout_s)
    if store is None:
        raise WrongWorld(
            f"rank {launch.rank} waited {timeout_s:g} s for rank 0 to appear in {path.name!r}; did "
            f"all {launch.size} ranks start, with the same options, and do they all see that "
            f"folder? {_CURE}"
        )
    # for what rank 0 says later: it waits for all ranks first, some of them far behind this one
    store.set_timeout(timedelta(seconds=timeout_s))
    store.add("arrived", 1)
    return store


def _try(path: Path) -> dist.TCPStore | None:
    """Open the store that `path` names; None if the file is absent or stale, or nothing answers."""
    # torch raises kinds of RuntimeError: refused, timed out
    with suppress(OSError, ValueError, KeyError, RuntimeError):
        entry = json.loads(path.read_text())
        store = dist.TCPStore(entry["address"], entry["port"], None, False, timedelta(seconds=2))
        if store.get("nonce").decode() == entry["nonce"]:
            return store
    return None
