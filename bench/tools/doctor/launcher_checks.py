"""Checks of the launcher: which one, and whether it belongs to the MPI library that is
installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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
_FAMILIES = {
    "Open MPI": "Open MPI",
    "HYDRA": "MPICH",
    "Intel": "Intel",
    "OpenRTE": "Open MPI",
    "MVAPICH": "MVAPICH",
}


def world(launch: Launch, asked: int | None) -> list[Finding]:
    """What the launcher's variables say, against what was asked for."""
    who = (
        "no launcher: this process is alone"
        if launch.source == "none"
        else f"{launch.source}: {launch.size} rank(s)"
    )
    if asked is None or asked == launch.size:
        return [ok("launcher", who)]
    start = f"start it as: mpirun -n {asked} --bind-to none python -m bench doctor ..."
    cure = (
        start
        if launch.source == "none"
        else f"use --world-size {launch.size} or start {asked} ranks"
    )
    return [failure("launcher", f"world_size={asked} was asked for, but {who}", cure)]


def library(launch: Launch, mpi: str, env: Mapping[str, str]) -> list[Finding]:
    """Does this launcher start this MPI? If not, each rank would be a world of its own."""
    gloo = f"--cells {','.join(f'{name}/gloo' for name in frameworks())}"
    if launch.source in NO_MPI:
        return [ok("MPI", f"{launch.source} starts no MPI ({mpi}): Gloo only")]
    if launch.source == "srun":
        if mpi.startswith("Open MPI") and "PMIX_NAMESPACE" not in env:
            return [
                failure(
                    "MPI",
                    f"srun was told no PMIx, and {mpi} needs it",
                    f"use srun --mpi=pmix, or {gloo}",
                )
            ]
        return [ok("MPI", f"srun with {mpi}")]
    starts = _STARTS.get(launch.source)
    if starts is None or mpi.startswith(starts):
        return [ok("MPI", mpi)]
    return [
        failure(
            "MPI",
            f"{launch.source} starts {starts[0]}, but the library is {mpi}",
            f"use the mpirun of {mpi}, or {gloo}",
        )
    ]


def mpirun(path: str | None, version: str, mpi: str | None) -> list[Finding]:
    """The mpirun that would be used here, against the library;
    `version` is what it says of itself.
    """
    if path is None:
        return [
            failure(
                "mpirun",
                "is not on PATH",
                "activate the environment (. .venv/bin/activate), or run make setup",
            )
        ]
    family = next((name for word, name in _FAMILIES.items() if word in version), "an unknown MPI")
    number = re.search(r"\d+(\.\d+)+", version)
    text = f"{path} is {family} {number[0] if number else ''}".rstrip()
    if mpi is None:
        return [ok("mpirun", text)]
    if not mpi.startswith(family):
        return [
            failure(
                "mpirun",
                f"{text}, but the library is {mpi}",
                "put the mpirun that belongs to it first on PATH",
            )
        ]
    if number and number[0] not in mpi:
        return [
            warning(
                "mpirun",
                f"{text}, but the library is {mpi}",
                "put the mpirun that belongs to it first on PATH",
            )
        ]
    return [ok("mpirun", text)]


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
