"""Checks of one host, each on values that are handed in: libraries, interfaces, folders, data."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench.backends.catalogue import interface_variables
from bench.config.datasets import ON_DISK, PUBLISHED
from bench.launch.world import Launch

_SETUP = "run make setup"
_NEEDED = ("torch", "torchvision", "mpi4py", "horovod")
# launcher -> how the MPI libraries that it starts begin their version text
_STARTS = {"mpirun": ("Open MPI",), "hydra": ("MPICH", "Intel", "MVAPICH")}
_STARTS |= {"mpirun_rsh": ("MVAPICH",), "pals": ("CRAY", "MPICH")}
NO_MPI = ("torchrun", "horovodrun")  # they start no MPI at all: Gloo and NCCL only
# a word of what mpirun says of itself -> its MPI
_FAMILIES = {"Open MPI": "Open MPI", "OpenRTE": "Open MPI", "HYDRA": "MPICH"}
_FAMILIES |= {"Intel": "Intel", "MVAPICH": "MVAPICH"}


Level = Literal["ok", "warning", "failure"]


class Finding(NamedTuple):
    """One line of the doctor's answer; `cure` is empty where all is well."""

    name: str
    level: Level
    text: str
    cure: str = ""

    def line(self, where: str = "") -> str:
        """Write the finding as a person reads it."""
        cure = f"; {self.cure}" if self.cure else ""
        return f"{self.level:<8} {self.name:<12} {where}{self.text}{cure}"


def libraries(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that everything imports, and that Horovod and mpi4py load one and the same MPI."""
    for name, error in facts["errors"].items():
        yield Finding(name, "failure", f"does not import: {error}", _SETUP)
    if not facts["errors"]:
        versions = ", ".join(f"{name} {facts[name]}" for name in _NEEDED)
        yield Finding("libraries", "ok", f"{versions}, MPI: {facts['mpi']}")
    if len(facts["mpi_files"]) > 1:
        text = f"Horovod and mpi4py load different MPIs: {', '.join(facts['mpi_files'])}"
        cure = "unload other MPI modules, or make setup MPI_HOME=/the/one/to/use"
        yield Finding("MPI library", "failure", text, cure)
    # runs work with any torchvision; the user's own scripts do not
    if {"torchvision_alone", "torch", "torchvision"} <= facts.keys():
        text = (
            f"torch {facts['torch']} and torchvision {facts['torchvision']} are no pair: all that "
            "bench does works, but `import torchvision` in a script of yours fails "
            f"({facts['torchvision_alone']})"
        )
        build = facts["torch"].partition("+")[2] or "cpu"
        index = f"https://download.pytorch.org/whl/{build}"
        cure = f"for a pair: make setup TORCH_INDEX_URL={index}"
        yield Finding("torchvision", "warning", text, cure)


def build_record() -> dict[str, str] | None:
    """Read the versions that Horovod noted when it was built, if any; import nothing."""
    with suppress(OSError, ValueError, AttributeError):
        origin = importlib.util.find_spec("horovod").origin  # type: ignore[union-attr]
        record = json.loads(Path(str(origin)).with_name("metadata.json").read_text())
        return {str(name): str(version) for name, version in record.items()}
    return None


def horovod_build(record: Mapping[str, str] | None, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that Horovod was built against the torch that is installed, with both transports."""
    torch, built = facts.get("torch"), facts.get("horovod_built")
    if torch is None or (record is None and "horovod" in facts["errors"]):
        return  # said already
    if record is None:
        text = "has no note of the torch that it was built against"
        yield Finding("Horovod", "warning", text, _SETUP)
    elif (against := record.get("pytorch", "no torch at all")) != torch:
        text = f"was built against torch {against}, but torch {torch} is installed"
        yield Finding("Horovod", "failure", text, f"{_SETUP} to rebuild it")
    elif built and (absent := [name for name in ("mpi", "gloo") if not built[name]]):
        text = f"was built without {' and '.join(absent)}"
        yield Finding("Horovod", "failure", text, f"{_SETUP} to rebuild it")
    elif built:
        transports = ", ".join(name for name in built if built[name])
        source = facts["horovod_origin"]
        yield Finding("Horovod", "ok", f"for torch {against}, with {transports}, from {source}")


def nccl(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that both frameworks call the same NCCL; without GPUs there is nothing to say."""
    if not facts["gpus"]:
        return
    if not facts.get("horovod_built", {}).get("nccl"):
        text, cure = "Horovod was built without it", "build it with HOROVOD_GPU_OPERATIONS=NCCL"
        yield Finding("NCCL", "warning", f"{facts['gpus']} GPU(s), but {text}", cure)
    elif "error" in facts["nccl"]:
        yield Finding("NCCL", "failure", facts["nccl"]["error"], facts["nccl"]["cure"])
    elif len(libraries_called := {*facts["nccl"].values()}) == 1:
        yield Finding(
            "NCCL", "ok", f"{facts['gpus']} GPU(s), in both frameworks {libraries_called.pop()}"
        )
    else:
        each = ", ".join(f"{name} calls {library}" for name, library in facts["nccl"].items())
        cure = "build Horovod against torch's NCCL: HOROVOD_NCCL_HOME, HOROVOD_NCCL_LINK=SHARED"
        yield Finding("NCCL", "failure", f"{each}: two exchanges, not one", cure)


def mpi_started(launch: Launch, mpi: str, env: Mapping[str, str]) -> Finding:
    """Check that this launcher starts this MPI: if not, each rank is a world of its own."""
    if launch.source in NO_MPI:
        return Finding("MPI", "ok", f"{launch.source} starts no MPI ({mpi}): Gloo only")
    if launch.source == "srun":
        if not mpi.startswith("Open MPI") or "PMIX_NAMESPACE" in env:
            return Finding("MPI", "ok", f"srun with {mpi}")
        text, cure = f"srun was told no PMIx, and {mpi} needs it", "use srun --mpi=pmix"
        return Finding("MPI", "failure", text, f"{cure}, or --transport gloo")
    starts = _STARTS.get(launch.source, ("",))
    if mpi.startswith(starts):
        return Finding("MPI", "ok", mpi)
    text = f"{launch.source} starts {starts[0]}, but the library is {mpi}"
    return Finding("MPI", "failure", text, f"use the mpirun of {mpi}, or --transport gloo")


def mpirun(path: str | None, version: str, mpi: str | None) -> Finding:
    """Hold the mpirun on PATH against the library; `version` is what mpirun says of itself."""
    if path is None:
        cure = "activate the environment (. .venv/bin/activate), or run make setup"
        return Finding("mpirun", "failure", "is not on PATH", cure)
    family = next((name for word, name in _FAMILIES.items() if word in version), "an unknown MPI")
    number = (re.findall(r"\d+(?:\.\d+)+", version) or [""])[0]
    text = f"{path} is {family} {number}".rstrip()
    if mpi is None or (mpi.startswith(family) and number in mpi):
        return Finding("mpirun", "ok", text)
    level: Level = "warning" if mpi.startswith(family) else "failure"
    cure = "put the mpirun that belongs to it first on PATH"
    return Finding("mpirun", level, f"{text}, but the library is {mpi}", cure)


def interfaces(
    env: Mapping[str, str], existing: Sequence[str], *, several_hosts: bool
) -> Iterator[Finding]:
    """Check that the interfaces which variables name exist, and lead to the other ranks."""
    names = (*interface_variables(), "NCCL_SOCKET_IFNAME")
    named = {name: env[name] for name in names if env.get(name)}
    wrong = False
    for name, value in named.items():
        text, others = "", existing
        if not _exists(name, value, existing):
            text = f"{name}={value!r} names no interface of this host"
        elif several_hosts and value.lstrip("=") == "lo":
            others = [other for other in existing if other != "lo"]
            text = f"{name}='lo' does not leave this host, and ranks are on several"
        if text:
            wrong, cure = True, f"unset it, or name one of {', '.join(others)}"
            yield Finding("interface", "failure", text, cure)
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
    if dataset in PUBLISHED:
        fetched = ON_DISK[dataset].holds
        if (data_dir / fetched).exists():
            return Finding("data", "ok", f"{dataset} is in {data_dir}")
        text = f"{dataset} is not in {str(data_dir)!r} (no {fetched}): the first run would "
        cure = "where compute nodes have no network, make a short run on a login node first"
        return Finding("data", "warning", f"{text}download it", cure)
    if not data_dir.is_dir():
        cure = "put the data there, or use --data-dir"
        return Finding("data", "failure", f"data_dir={str(data_dir)!r} is no folder", cure)
    classes = sum(entry.is_dir() for entry in data_dir.iterdir())
    if dataset == "imagefolder" and not classes:
        text = f"{str(data_dir)!r} has no folders: an image folder has one per class"
        cure = "use --data-dir with the folder above them, such as ImageNet's train"
        return Finding("data", "failure", text, cure)
    return Finding("data", "ok", f"{dataset}: {classes} folder(s) in {data_dir}")
