"""Checks of one host: whether its libraries fit together, and whether its own name resolves."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_SETUP = "run make setup"


class Finding(NamedTuple):
    """One line of the doctor's answer; `level` is ok, warning or failure."""

    name: str
    level: str
    text: str
    cure: str = ""  # where not all is well

    def line(self, host: str = "") -> str:
        """Return the finding as a line for people; `host` stands before its text."""
        cure = f"; {self.cure}" if self.cure else ""
        return f"{self.level:<8} {self.name:<12} {host}{self.text}{cure}"


def libraries(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings on the facts of probe.look: failed imports, two MPIs, and Horovod's build."""
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


def own_name(host: str) -> Finding:
    """Check that this host resolves its own name `host`, as Gloo needs; return the finding."""
    try:
        address = socket.getaddrinfo(host, None)[0][4][0]
    except OSError as error:
        text = f"{host!r} does not resolve here ({error.strerror}): Gloo cannot start"
        cure = f"add a line for it to /etc/hosts: 127.0.1.1 {host}"
        return Finding("host name", "failure", text, cure)
    return Finding("host name", "ok", f"{host} resolves to {address}")
