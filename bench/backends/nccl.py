"""The NCCL that runs: its library, its version, and its transport to the other ranks."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import re
import socket
import tempfile
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.backends import catalogue
from bench.config import RunConfig, UsageError

if TYPE_CHECKING:  # the doctor asks for the library alone
    from bench.backends.collectives import Collectives
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
_CONNECTION = re.compile(r"NCCL INFO (?:Channel|CollNet|Coll) .*? via (.+)")
# device, rank between or at the far side of it, and RCCL's communicator
_OF_ONE_RANK = re.compile(r"/-?\d+(?:\[\w+\]|\(\d+\))?|/Shared\b| comm \S+ nRanks \d+$")
_TRANSPORT = re.compile(
    r"P2P/(?:direct pointer|IPC|CUMEM|MNNVL|indirect)(?:/read)?(?:/CE)?"
    r"|SHM(?:/(?:direct|CE)/(?:direct|CE))?"
    r"|(?:NET|COLLNET)/[^/]+(?:/GDRDMA(?:\(PCI\))?)?"
)
_SHM = {"direct shared memory": "SHM", "SHM/direct/direct": "SHM"}  # until 2.11, and since
_NVLS = "NVLS multicast support is available"  # NVLink's switches add, where NCCL chooses that
_FLOATS = (1, 2**22)  # NCCL connects for an algorithm when a size first asks for it, since 2.22


@dataclass(frozen=True)
class Library:
    """A file with an NCCL in it."""

    path: str
    version: str
    sha256: str


def load(config: RunConfig, launch: Launch, device: Device) -> Backend:
    """Start a backend over NCCL, connect it as for gradients, and record which NCCL it uses."""
    from bench.backends import collectives

    with listening(os.environ) as info:
        backend: Backend = catalogue.implementation(config.backend)(config, launch, device)
        _connect(collectives.load(config.backend, config), device.torch_device)
        rank_transports = transports(_lines(info))
    all_transports = backend.gather(rank_transports)
    nccl_library = library(catalogue.CATALOGUE[config.backend].nccl_inside)
    backend.versions |= {"nccl": nccl_library.version, "nccl library sha256": nccl_library.sha256}
    backend.versions["nccl transport"] = transport(all_transports) if launch.size > 1 else "none"
    backend.files["nccl_library"] = nccl_library.path
    return backend


def _connect(framework: Collectives, device: Any) -> None:
    """The first all-reduces, for which a framework makes the communicator of its gradients."""
    import torch

    for count in _FLOATS:
        framework.all_reduce(torch.zeros(count, device=device))[0].item()  # waits for the device


@contextmanager
def listening(env: MutableMapping[str, str]) -> Iterator[Path | None]:
    """An NCCL that starts inside writes its connections into this file; None for no such file.

    NCCL reads its variables once, so they are restored afterwards: a log has the user's own. Every
    run over NCCL does the same. A user's NCCL_DEBUG stays, and its file is read if it is this
    process's.
    """
    if env.get("NCCL_DEBUG"):
        yield _file_of_the_user(env)
        return
    with tempfile.TemporaryDirectory(prefix="nccl-") as folder:
        info = Path(folder, "info")
        variables = {**_DEBUG, "NCCL_DEBUG_FILE": str(info).replace("%", "%%")}
        user_values = {name: env.get(name) for name in variables}
        env.update(variables)
        try:
            yield info
        finally:
            for name, value in user_values.items():
                env.pop(name)
                env.update({} if value is None else {name: value})


def _file_of_the_user(env: MutableMapping[str, str]) -> Path | None:
    """The file into which the user lets NCCL write its INFO lines, if each process has its own."""
    pattern = env.get("NCCL_DEBUG_FILE", "")
    if env["NCCL_DEBUG"].upper() not in ("INFO", "TRACE") or "%p" not in pattern:
        return None
    placeholders = {"%h": socket.gethostname().partition(".")[0], "%p": str(os.getpid()), "%%": "%"}
    return Path(re.sub("%[hp%]", lambda match: placeholders[match[0]], pattern))


def _lines(info: Path | None) -> list[str]:
    if info is None or not info.is_file():
        return []
    ctypes.CDLL(None).fflush(None)  # some NCCLs keep the last lines to themselves
    return info.read_text(errors="replace").splitlines()


def transports(lines: Iterable[str]) -> set[str]:
    """A rank's transports, from NCCL's own lines: {'P2P/CUMEM', 'NET/IB/GDRDMA'}.

    Devices and ranks are left out. Where a line is not understood, or there is none, NOT_RECORDED
    is among them.
    """
    lines = list(lines)
    connections = {match[1] for line in lines if (match := _CONNECTION.search(line))}
    names = {
        _SHM.get(name, name)
        for name in (_OF_ONE_RANK.sub("", connection) for connection in connections)
    }
    paths = {name if _TRANSPORT.fullmatch(name) else NOT_RECORDED for name in names}
    return (paths or {NOT_RECORDED}) | ({"NVLS"} if any(_NVLS in line for line in lines) else set())


def transport(of_ranks: Iterable[set[str]]) -> str:
    """The transports of all ranks, 'NET/IB/GDRDMA, P2P/CUMEM'; NOT_RECORDED if one is unknown."""
    of_all = set().union(*of_ranks)
    return NOT_RECORDED if NOT_RECORDED in of_all else ", ".join(sorted(of_all))


def library(inside: str = "") -> Library:
    """The NCCL that a framework calls in this process.

    `inside` begins the name of the framework's library that may have an NCCL linked into it; torch
    has one inside where none is loaded beside it. Raises UsageError where it cannot be told.
    """
    maps = _MAPS.read_text()
    shared = mapped(_SHARED, maps)
    if len(shared) > 1:
        raise UsageError(
            f"this process has loaded {' and '.join(shared)}: which NCCL carries the gradients is "
            "not known; take one of them out of LD_LIBRARY_PATH, or build Horovod with "
            "HOROVOD_NCCL_HOME at torch's and HOROVOD_NCCL_LINK=SHARED"
        )
    try:
        for path in mapped(re.escape(inside), maps) if inside else ():
            if version := _version_inside(path):
                return Library(path, version, _sha256(path))
        if shared:
            return Library(shared[0], _version_of(shared[0]), _sha256(shared[0]))
        for path in mapped(_OF_TORCH, maps):
            if version := _version_inside(path):
                return Library(path, version, _sha256(path))
    except OSError as error:
        reason = f"the NCCL that this process has loaded cannot be read ({error})"
        raise UsageError(f"{reason}; start again, and leave its file alone meanwhile") from None
    raise UsageError("no NCCL is loaded in this process; install a torch for GPUs")


def mapped(name: str, maps: str) -> list[str]:
    """Paths of the files whose names begin as the pattern `name` says, from a /proc/PID/maps."""
    lines = [line.split(maxsplit=5) for line in maps.splitlines()]
    paths = {line[5] for line in lines if len(line) == 6}
    return sorted(path for path in paths if re.match(name, Path(path).name))


def _version_of(path: str) -> str:
    """What a loaded library answers; it is not loaded a second time."""
    code = ctypes.c_int()
    loaded = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    loaded.ncclGetVersion(ctypes.byref(code))
    return version(code.value)


def _version_inside(path: str) -> str | None:
    """That of an NCCL linked into a library, which hides its functions; None if there is none."""
    with (
        Path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        line = _LINE_OF_VERSION.search(content)
        return line[1].decode() if line else None


def _sha256(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def version(code: int) -> str:
    """NCCL's number in words: 22703 -> '2.27.3'; before 2.9 a digit less, 2804 -> '2.8.4'."""
    major, minor_patch = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{minor_patch // 100}.{minor_patch % 100}"
