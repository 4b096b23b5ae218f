"""Checks of the launcher: which one, and whether it belongs to the MPI that is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bench.backends.catalogue import CATALOGUE, frameworks
from bench.launch.world import Launch
from bench.tools.doctor.findings import Finding, failure, ok, warning

# launcher -> how the MPI libraries that it starts begin their version text
_STARTS = {
    "mpirun": ("Open MPI",),
    "hydra": ("MPICH", "Intel", "MVAPICH"),
    "mpirun_rsh": ("MVAPICH",),
    "pals": ("CRAY", "MPICH"),
}
NO_MPI = ("torchrun", "horovodrun")  # they start no MPI at all: Gloo and NCCL only
# a word of what mpirun says of itself -> its MPI
_FAMILIES = {"Open MPI": "Open MPI", "OpenRTE": "Open MPI", "HYDRA": "MPICH"}
_FAMILIES |= {"Intel": "Intel", "MVAPICH": "MVAPICH"}


def world(launch: Launch, asked: int | None) -> Finding:
    """What the launcher's variables say, against what was asked for."""
    alone = launch.source == "none"
    text = f"{launch.source}: {launch.size} rank(s)"
    text = "no launcher: this process is alone" if alone else text
    if asked is None or asked == launch.size:
        return ok("launcher", text)
    cure = f"use --world-size {launch.size} or start {asked} ranks"
    if alone:
        cure = f"start it as: mpirun -n {asked} --bind-to none python -m bench doctor ..."
    return failure("launcher", f"world_size={asked} was asked for, but {text}", cure)


def library(launch: Launch, mpi: str, env: Mapping[str, str]) -> Finding:
    """Does this launcher start this MPI? If not, each rank would be a world of its own."""
    gloo = f"--cells {','.join(f'{name}/gloo' for name in frameworks())}"
    if launch.source in NO_MPI:
        return ok("MPI", f"{launch.source} starts no MPI ({mpi}): Gloo only")
    if launch.source == "srun":
        if mpi.startswith("Open MPI") and "PMIX_NAMESPACE" not in env:
            text = f"srun was told no PMIx, and {mpi} needs it"
            return failure("MPI", text, f"use srun --mpi=pmix, or {gloo}")
        return ok("MPI", f"srun with {mpi}")
    starts = _STARTS.get(launch.source)
    if starts is None or mpi.startswith(starts):
        return ok("MPI", mpi)
    text = f"{launch.source} starts {starts[0]}, but the library is {mpi}"
    return failure("MPI", text, f"use the mpirun of {mpi}, or {gloo}")


def mpirun(path: str | None, version: str, mpi: str | None) -> Finding:
    """The mpirun on PATH against the library; `version` is what mpirun says of itself."""
    if path is None:
        cure = "activate the environment (. .venv/bin/activate), or run make setup"
        return failure("mpirun", "is not on PATH", cure)
    family = next((name for word, name in _FAMILIES.items() if word in version), "an unknown MPI")
    number = (re.findall(r"\d+(?:\.\d+)+", version) or [""])[0]
    text = f"{path} is {family} {number}".rstrip()
    if mpi is None or (mpi.startswith(family) and number in mpi):
        return ok("mpirun", text)
    unequal = warning if mpi.startswith(family) else failure
    cure = "put the mpirun that belongs to it first on PATH"
    return unequal("mpirun", f"{text}, but the library is {mpi}", cure)


def cells(launch: Launch, asked: Sequence[str] | None, gpus: int) -> list[str]:
    """Framework/transport pairs to try."""
    if asked is not None:
        return list(asked)
    transports = ["gloo"] if launch.source in NO_MPI else ["mpi", "gloo"]
    # NCCL refuses two ranks on one GPU
    local = 2 if launch.source == "none" else launch.local_size
    transports += ["nccl"] if gpus >= local else []
    return [
        f"{name}/{transport}"
        for transport in transports
        for name in frameworks()
        if transport in CATALOGUE[name].transports
    ]


def groups(cells: Sequence[str]) -> Iterator[list[str]]:
    """Cells by the process that tries them: MPI starts once in a rank's life, and last, because a
    wrong one may end it.
    """
    over_mpi = [cell for cell in cells if cell.endswith("/mpi")]
    yield from ([cell] for cell in cells if cell not in over_mpi)
    if over_mpi:
        yield over_mpi
