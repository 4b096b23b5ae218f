"""Checks of one host, each on values that are handed in: libraries, interfaces, folders, data."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.backends.catalogue import interface_variables
from bench.config.fields import ON_DISK, PUBLISHED

_SETUP = "run make setup"
# launcher -> how the MPI libraries that it starts begin their version text; others start no MPI
_STARTS = {"mpirun": ("Open MPI",), "hydra": ("MPICH", "Intel", "MVAPICH")}
_STARTS |= {"mpirun_rsh": ("MVAPICH",), "pals": ("CRAY", "MPICH")}


class Finding(NamedTuple):
    """One line of the doctor's answer; `level` is ok, warning or failure."""

    name: str
    level: str
    text: str
    cure: str = ""  # where not all is well

    def line(self, host: str = "") -> str:
        """Write the finding as a person reads it."""
        cure = f"; {self.cure}" if self.cure else ""
        return f"{self.level:<8} {self.name:<12} {host}{self.text}{cure}"


def libraries(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that all import, that there is one MPI, and that Horovod was built for this torch."""
    for name, error in facts["errors"].items():
        yield Finding(name, "failure", f"does not import: {error}", _SETUP)
    if facts["errors"]:
        return
    names = ("torch", "torchvision", "mpi4py", "horovod", "mpi")
    text = ", ".join(f"{name} {facts[name]}" for name in names)
    yield Finding("libraries", "ok", text)
    if len(facts["mpi_files"]) > 1:
        text = f"Horovod and mpi4py load different MPIs: {', '.join(facts['mpi_files'])}"
        cure = "unload other MPI modules, or make setup MPI_HOME=/the/one/to/use"
        yield Finding("MPI library", "failure", text, cure)
    torch, built = facts["horovod_torch"], facts["horovod_built"]
    if torch != facts["torch"]:
        text = f"was built against torch {torch}, but torch {facts['torch']} is installed"
        yield Finding("Horovod", "failure", text, f"{_SETUP} to rebuild it")
    elif not {"mpi", "gloo"} <= {*built}:
        text = f"was built with {', '.join(built)} alone"
        yield Finding("Horovod", "failure", text, f"{_SETUP} to rebuild it")
    else:
        text = f"for torch {torch}, with {', '.join(built)}, from {facts['horovod_wheel']}"
        yield Finding("Horovod", "ok", text)


def kind(version: str) -> str:
    """Name an mpirun, by what it says of its version, as a launch of it is named."""
    return "hydra" if re.search("HYDRA|Intel", version) else "mpirun"


def mpi_started(source: str, mpi: str, env: Mapping[str, str]) -> Finding:
    """Check that this launcher starts this MPI: if not, each rank is a world of its own."""
    if source in ("torchrun", "horovodrun"):
        return Finding("MPI", "ok", f"{source} starts none: Gloo and NCCL alone")
    if source == "srun" and mpi.startswith("Open MPI") and "PMIX_NAMESPACE" not in env:
        cure = "use srun --mpi=pmix, or --transport gloo"
        return Finding("MPI", "failure", f"srun was told no PMIx, and {mpi} needs it", cure)
    if not mpi.startswith(_STARTS.get(source, ("",))):
        text = f"{source} does not start {mpi}, which is the library here"
        return Finding("MPI", "failure", text, "use the mpirun of that MPI, or --transport gloo")
    return Finding("MPI", "ok", f"{source} with {mpi}")


def interfaces(
    env: Mapping[str, str], existing: Sequence[str], *, several_hosts: bool
) -> Iterator[Finding]:
    """Check that the interfaces which variables name exist, and lead to the other ranks."""
    names = (*interface_variables(), "NCCL_SOCKET_IFNAME")
    named = {name: env[name] for name in names if env.get(name)}
    others = [name for name in existing if name != "lo"] if several_hosts else existing
    wrong = {
        f"{name}={value}": f"unset it, or name one of {', '.join(others)}"
        for name, value in named.items()
        if not _exists(name, value, others)
    }
    for text, cure in wrong.items():
        reason = "names no interface here that leads to the other ranks"
        yield Finding("interface", "failure", f"{text} {reason}", cure)
    if not wrong:
        names_set = ", ".join(f"{name}={value}" for name, value in named.items()) or "none named"
        yield Finding("interface", "ok", f"{names_set}; here are {', '.join(existing)}")


def _exists(name: str, value: str, existing: Sequence[str]) -> bool:
    """Check interfaces: Gloo takes exact names; NCCL prefixes, exact after '=', '^' excludes."""
    if name != "NCCL_SOCKET_IFNAME":
        return set(value.split(",")) <= set(existing)
    if value.startswith("="):
        return not set(value[1:].split(",")).isdisjoint(existing)
    return value.startswith("^") or any(i.startswith(tuple(value.split(","))) for i in existing)


def own_name(host: str) -> Finding:
    """Check that a host knows its own name: Gloo crashes or waits in vain where it does not."""
    try:
        address = socket.getaddrinfo(host, None)[0][4][0]
    except OSError as error:
        text = f"{host!r} does not resolve here ({error.strerror}): Gloo cannot start"
        cure = f"add a line for it to /etc/hosts: 127.0.1.1 {host}"
        return Finding("host name", "failure", text, cure)
    return Finding("host name", "ok", f"{host} resolves to {address}")


def folder(path: Path, use: str, flag: str) -> Finding:
    """Check that a folder can be written; `use` is what for."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.NamedTemporaryFile(dir=path, prefix=".doctor.").close()
    except OSError as error:
        cure = f"use {flag} with a folder that all ranks see and may write"
        text = f"{str(path)!r} cannot be written: {error.strerror}"
        return Finding("folder", "failure", text, cure)
    return Finding("folder", "ok", f"{use} {path}")


def data(dataset: str, data_dir: Path | None) -> Finding:
    """Check that the data set is there."""
    if data_dir is None:
        return Finding("data", "ok", f"{dataset} needs no folder")
    if dataset in PUBLISHED and not (data_dir / ON_DISK[dataset].holds).exists():
        text = f"{dataset} is not in {str(data_dir)!r}: the first run would download it"
        cure = "where compute nodes have no network, make a short run on a login node first"
        return Finding("data", "warning", text, cure)
    if not data_dir.is_dir():
        cure = "put the data there, or use --data-dir"
        return Finding("data", "failure", f"data_dir={str(data_dir)!r} is no folder", cure)
    if dataset == "imagefolder" and not any(entry.is_dir() for entry in data_dir.iterdir()):
        text = f"{str(data_dir)!r} has no folders: an image folder has one per class"
        cure = "use --data-dir with the folder above them, such as ImageNet's train"
        return Finding("data", "failure", text, cure)
    return Finding("data", "ok", f"{dataset} is in {data_dir}")
