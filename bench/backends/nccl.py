"""Backends over NCCL, and the library, version and transports of the NCCL that a run uses."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

from bench.backends import catalogue
from bench.config import RunConfig, UsageError

if TYPE_CHECKING:  # the doctor asks for the library alone
    from bench.backends.protocol import Backend
    from bench.launch.world import Launch
    from bench.train.device import Device

NOT_RECORDED = "not recorded"
_MAPS = Path("/proc/self/maps")
# RCCL answers to NCCL's names; plug-ins are called libnccl-net.so, libnccl-tuner.so and so on
_SHARED = r"lib[nr]ccl\.so"
_OF_TORCH = r"libtorch_(cuda|hip)\w*\.so"
_LINE_OF_VERSION = re.compile(rb"[NR]CCL version (?:: )?(\d+\.\d+\.\d+)")  # every NCCL holds it
# NCCL tells of its connections in subsystem INIT, when it makes them; COLL would tell of each step
_DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT"}
_CONNECTION = re.compile(
    r"NCCL INFO (?:Channel|CollNet|Coll) .*? via (.+?)(?: comm \S+ nRanks.*)?$"
)
# device, and rank between or at the far side of it; shared buffers are of some connections alone
_OF_ONE_RANK = re.compile(r"/-?\d+(?:\[\w+\]|\(\d+\))?|/Shared\b")
_FLOATS = (1, 2**22)  # NCCL connects for an algorithm when a size first asks for it, since 2.22


def load(config: RunConfig, launch: Launch, device: Device) -> Backend:
    """Start and return the backend of `config` over NCCL. All ranks must call this.

    The backend's `versions` have NCCL's version and transports, its `files` the library's path.
    """
    import torch

    with listening(os.environ) as info:
        backend: Backend = catalogue.implementation(config.backend)(config, launch, device)
        for count in _FLOATS:  # for the first one a framework makes its gradients' communicator
            floats = torch.zeros(count, device=device.torch_device)
            backend.all_reduce(floats)
            floats[0].item()  # waits for the device
        ctypes.CDLL(None).fflush(None)  # some NCCLs keep the last lines to themselves
        text = info.read_text(errors="replace") if info.is_file() else ""
    of_ranks = set().union(*backend.gather(transports(text.splitlines())))
    transport = NOT_RECORDED if NOT_RECORDED in of_ranks else ", ".join(sorted(of_ranks))
    path, number, sha256 = library(catalogue.CATALOGUE[config.backend].nccl_inside)
    backend.versions |= {"nccl": number, "nccl library sha256": sha256}
    backend.versions["nccl transport"] = transport if launch.size > 1 else "none"
    backend.files["nccl_library"] = path
    return backend


@contextmanager
def listening(env: MutableMapping[str, str]) -> Iterator[Path]:
    """Let NCCL, if it starts in the block, write its connections to a file; yield the file's path.

    In the block `env` has NCCL's debug variables. If the user has set NCCL_DEBUG, `env` stays as it
    is, and the file is not written. The block's end deletes the file and restores the variables.
    """
    with tempfile.TemporaryDirectory(prefix="nccl-") as folder:
        info, before = Path(folder, "info"), dict(env)
        if not env.get("NCCL_DEBUG"):
            env.update(_DEBUG, NCCL_DEBUG_FILE=str(info).replace("%", "%%"))
        try:
            yield info
        finally:
            for name in (*_DEBUG, "NCCL_DEBUG_FILE"):
                env.pop(name, None)
                env.update({name: before[name]} if name in before else {})


def transports(lines: Iterable[str]) -> set[str]:
    """Return the transports in lines of NCCL's log, such as {'P2P/CUMEM', 'NET/IB/GDRDMA'}.

    Device and rank numbers are left out. Return {NOT_RECORDED} if no line names a transport.
    """
    connections = {match[1] for line in lines if (match := _CONNECTION.search(line))}
    return {_OF_ONE_RANK.sub("", connection) for connection in connections} or {NOT_RECORDED}


def library(inside: str = "") -> tuple[str, str, str]:
    """Return the path, version and SHA-256 of the library whose NCCL a framework calls.

    Of the loaded libraries, it is the first that has an NCCL: one whose name begins with `inside`
    (unless that is ''), then libnccl.so, then torch's own. Raises UsageError if none has an NCCL,
    or if more than one libnccl.so is loaded.
    """
    maps = _MAPS.read_text()
    shared = mapped(_SHARED, maps)
    if len(shared) > 1:
        raise UsageError(
            f"this process has loaded {' and '.join(shared)}: which NCCL carries the gradients is "
            "not known; take one of them out of LD_LIBRARY_PATH, or build Horovod with "
            "HOROVOD_NCCL_HOME at torch's and HOROVOD_NCCL_LINK=SHARED"
        )
    of_framework = mapped(re.escape(inside), maps) if inside else []
    for path in (*of_framework, *shared, *mapped(_OF_TORCH, maps)):
        with Path(path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            number = None
            if path in shared:  # asked itself, without loading it a second time
                code = ctypes.c_int()
                loaded = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
                loaded.ncclGetVersion(ctypes.byref(code))
                # 22703 is 2.27.3; before 2.9 a digit less, 2804 is 2.8.4
                major, minor = divmod(code.value, 10000 if code.value >= 10000 else 1000)
                number = f"{major}.{minor // 100}.{minor % 100}"
            elif line := _LINE_OF_VERSION.search(content):  # its functions are hidden
                number = line[1].decode()
            if number:
                return path, number, hashlib.sha256(content).hexdigest()
    raise UsageError("no NCCL is loaded in this process; install a torch for GPUs")


def mapped(name: str, maps: str) -> list[str]:
    """List paths from the text of a /proc/PID/maps. Their file names begin with regex `name`."""
    lines = [line.split(maxsplit=5) for line in maps.splitlines()]
    paths = {line[5] for line in lines if len(line) == 6}
    return sorted(path for path in paths if re.match(name, Path(path).name))
