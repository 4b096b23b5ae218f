"""Checks of one host, each on values that are handed in: libraries, interfaces, folder, data."""

from __future__ import annotations

import importlib.util
import json
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.backends.catalogue import interface_variables
from bench.config.datasets import ON_DISK, PUBLISHED
from bench.instrument.energy import meters_of
from bench.tools.doctor.findings import Finding, failure, ok, warning
from bench.tools.setup.origin import CONDA, transports

_SETUP = "run make setup"
_NEEDED = ("torch", "torchvision", "mpi4py", "horovod")


def libraries(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Does everything import, and do Horovod and mpi4py load one and the same MPI?"""
    for name, error in facts["errors"].items():
        yield failure(name, f"does not import: {error}", _SETUP)
    if not facts["errors"]:
        versions = ", ".join(f"{name} {facts[name]}" for name in _NEEDED)
        yield ok("libraries", f"{versions}, MPI: {facts['mpi']}")
    if len(facts["mpi_files"]) > 1:
        text = f"Horovod and mpi4py load different MPIs: {', '.join(facts['mpi_files'])}"
        cure = "unload other MPI modules, or make setup MPI_HOME=/the/one/to/use"
        yield failure("MPI library", text, cure)


def torchvision_pair(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Are torch and torchvision of one build? Runs work with any; the user's own scripts do not."""
    if {"torchvision_alone", "torch", "torchvision"} <= facts.keys():
        text = (
            f"torch {facts['torch']} and torchvision {facts['torchvision']} are no pair: all that "
            "bench does works, but `import torchvision` in a script of yours fails "
            f"({facts['torchvision_alone']})"
        )
        build = facts["torch"].partition("+")[2] or "cpu"
        index = f"https://download.pytorch.org/whl/{build}"
        yield warning("torchvision", text, f"for a pair: make setup TORCH_INDEX_URL={index}")


def build_record() -> dict[str, str] | None:
    """The versions that Horovod noted when it was built, or None; imports nothing."""
    with suppress(OSError, ValueError, AttributeError):
        origin = importlib.util.find_spec("horovod").origin  # type: ignore[union-attr]
        record = json.loads(Path(str(origin)).with_name("metadata.json").read_text())
        return {str(name): str(version) for name, version in record.items()}
    return None


def horovod_build(record: Mapping[str, str] | None, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Was Horovod built against the torch that is installed, and with both transports?"""
    torch, built = facts.get("torch"), facts.get("horovod_built")
    if torch is None or (record is None and "horovod" in facts["errors"]):
        return  # said already
    from_conda = facts.get("horovod_origin", "").startswith(CONDA)
    parts = 2 if from_conda else None  # conda keeps a build with its minor version of torch
    if record is None:
        yield warning("Horovod", "has no note of the torch that it was built against", _SETUP)
    elif _start(against := record.get("pytorch", "no torch at all"), parts) != _start(torch, parts):
        text = f"was built against torch {against}, but torch {torch} is installed"
        yield failure("Horovod", text, f"{_SETUP} to rebuild it")
    elif built and (absent := [name for name in ("mpi", "gloo") if not built[name]]):
        text = f"was built without {' and '.join(absent)}"
        if from_conda and absent == ["gloo"]:
            cure = "leave horovod/gloo out of studies, or build Horovod as environment.yml says"
            yield warning("Horovod", f"is {facts['horovod_origin']} and {text}", cure)
        else:
            yield failure("Horovod", text, f"{_SETUP} to rebuild it")
    elif built:
        origin = facts.get("horovod_origin", "origin unknown")
        yield ok("Horovod", f"for torch {against}, {transports(built)}: {origin}")


def _start(version: str, parts: int | None) -> list[str]:
    return version.split(".")[:parts]


def devices(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Both frameworks must call the same NCCL; nothing to say without GPUs."""
    if not facts.get("devices"):
        return
    gpus = f"{len(facts['devices'])} GPU(s)"
    if not facts.get("horovod_built", {}).get("nccl"):
        cure = "build it with HOROVOD_GPU_OPERATIONS=NCCL"
        yield warning("NCCL", f"{gpus}, but Horovod was built without NCCL", cure)
        return
    if "error" in facts["nccl"]:
        yield failure("NCCL", facts["nccl"]["error"], facts["nccl"]["cure"])
        return
    of_ddp, of_horovod = (_nccl(facts["nccl"][name]) for name in ("ddp", "horovod"))
    if of_ddp == of_horovod:
        yield ok("NCCL", f"{gpus}, in both frameworks {of_ddp}")
    else:
        cure = "build Horovod against torch's NCCL: HOROVOD_NCCL_HOME, HOROVOD_NCCL_LINK=SHARED"
        yield failure(
            "NCCL", f"torch calls {of_ddp}, Horovod {of_horovod}: two exchanges, not one", cure
        )


def _nccl(library: Mapping[str, str]) -> str:
    return f"NCCL {library['version']} of {library['path']} (SHA-256 {library['sha256'][:12]})"


def interfaces(
    env: Mapping[str, str], existing: Sequence[str], several_hosts: bool
) -> list[Finding]:
    """Interfaces that variables name must exist, lead to the other ranks, and agree."""
    findings: list[Finding] = []
    of_gloo = interface_variables()
    named = {name: env[name] for name in (*of_gloo, "NCCL_SOCKET_IFNAME") if env.get(name)}
    for name, value in named.items():
        if not _exists(name, value, existing):
            cure = f"unset it, or name one of {', '.join(existing)}"
            text = f"{name}={value!r} names no interface of this host"
            findings.append(failure("interface", text, cure))
        elif several_hosts and value.lstrip("=") == "lo":
            cure = f"unset it, or name one of {', '.join(n for n in existing if n != 'lo')}"
            text = f"{name}='lo' does not leave this host, and ranks are on several"
            findings.append(failure("interface", text, cure))
    first, *others = [name for name in of_gloo if name in named] or [""]
    for name in others:
        if named[name] != named[first]:
            text = f"{first}={named[first]!r} but {name}={named[name]!r}: the frameworks would use "
            findings.append(failure("interface", f"{text}different wires", "unset one of them"))
    names = ", ".join(f"{name}={value}" for name, value in named.items()) or "none named"
    return findings or [ok("interface", f"{names}; here are {', '.join(existing)}")]


def _exists(name: str, value: str, existing: Sequence[str]) -> bool:
    """Gloo takes exact names; NCCL takes prefixes, or exact names after '=', and '^' excludes."""
    if name != "NCCL_SOCKET_IFNAME":
        return set(value.split(",")) <= set(existing)
    if value.startswith("="):
        return not set(value[1:].split(",")).isdisjoint(existing)
    return value.startswith("^") or any(i.startswith(tuple(value.split(","))) for i in existing)


def own_name(host: str) -> Finding:
    """Gloo crashes or waits in vain where a host does not know its own name."""
    try:
        address = socket.getaddrinfo(host, None)[0][4][0]
    except OSError as error:
        text = f"{host!r} does not resolve here ({error.strerror}): Gloo cannot start"
        return failure("host name", text, f"add a line for it to /etc/hosts: 127.0.1.1 {host}")
    return ok("host name", f"{host} resolves to {address}")


def folder(path: Path) -> Finding:
    """Can the ranks' meeting folder be written?"""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.NamedTemporaryFile(dir=path, prefix=".doctor.").close()
    except OSError as error:
        cure = "use --rendezvous-dir with a folder that all ranks see and may write"
        return failure("folder", f"{str(path)!r} cannot be written: {error.strerror}", cure)
    return ok("folder", f"ranks meet in {path}")


def energy(sysfs: Path, *, first_of_node: bool) -> Iterator[Finding]:
    """Which counters of the node a run will read, said once a node; to have none is no fault."""
    node = meters_of(sysfs, None, first_of_node=first_of_node)
    if node.meters:
        yield ok("energy", f"read from {', '.join(meter.name for meter in node.meters)}")
    elif first_of_node:
        yield ok("energy", f"will not be known: {'; '.join(node.absent)}")


def data(dataset: str, data_dir: Path | None) -> Finding:
    """Is the data set there?"""
    if data_dir is None:
        return ok("data", f"{dataset} needs no folder")
    if dataset in PUBLISHED:
        fetched = ON_DISK[dataset].holds
        if (data_dir / fetched).exists():
            return ok("data", f"{dataset} is in {data_dir}")
        text = f"{dataset} is not in {str(data_dir)!r} (no {fetched}): the first run would "
        cure = "where compute nodes have no network, make a short run on a login node first"
        return warning("data", f"{text}download it", cure)
    if not data_dir.is_dir():
        cure = "put the data there, or use --data-dir"
        return failure("data", f"data_dir={str(data_dir)!r} is no folder", cure)
    classes = sum(entry.is_dir() for entry in data_dir.iterdir())
    if dataset == "imagefolder" and not classes:
        text = f"{str(data_dir)!r} has no folders: an image folder has one per class"
        cure = "use --data-dir with the folder above them, such as ImageNet's train"
        return failure("data", text, cure)
    return ok("data", f"{dataset}: {classes} folder(s) in {data_dir}")
