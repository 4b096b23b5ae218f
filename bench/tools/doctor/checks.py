"""Checks of one host, each on values that are handed in: libraries, MPI, interfaces, its name."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench.backends.catalogue import interface_variables

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
    torch, built = facts["horovod_torch"], ", ".join(facts["horovod_built"])
    if torch != facts["torch"]:
        text = f"was built against torch {torch}, but torch {facts['torch']} is installed"
        yield Finding("Horovod", "failure", text, f"{_SETUP} to rebuild it")
    elif not {"mpi", "gloo"} <= {*facts["horovod_built"]}:
        text = f"was built with {built} alone"
        yield Finding("Horovod", "failure", text, f"{_SETUP} to rebuild it")
    else:
        text = f"for torch {torch}, with {built}, from {facts['horovod_wheel']}"
        yield Finding("Horovod", "ok", text)


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
    named = {name: env[name] for name in interface_variables() if env.get(name)}
    others = [name for name in existing if name != "lo"] if several_hosts else existing
    wrong = [f"{name}={value}" for name, value in named.items() if {*value.split(",")} - {*others}]
    for text in wrong:
        reason = "names no interface here that leads to the other ranks"
        cure = f"unset it, or name one of {', '.join(others)}"
        yield Finding("interface", "failure", f"{text} {reason}", cure)
    if not wrong:
        names_set = ", ".join(f"{name}={value}" for name, value in named.items()) or "none named"
        yield Finding("interface", "ok", f"{names_set}; here are {', '.join(existing)}")


def own_name(host: str) -> Finding:
    """Check that a host knows its own name: Gloo crashes or waits in vain where it does not."""
    try:
        address = socket.getaddrinfo(host, None)[0][4][0]
    except OSError as error:
        text = f"{host!r} does not resolve here ({error.strerror}): Gloo cannot start"
        cure = f"add a line for it to /etc/hosts: 127.0.1.1 {host}"
        return Finding("host name", "failure", text, cure)
    return Finding("host name", "ok", f"{host} resolves to {address}")
