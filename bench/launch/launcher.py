"""Commands of srun, ibrun and mpirun that start ranks; only the standard library is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

# More ranks than cores, none bound to a single core; Open MPI 4 and 5 both understand it
ON_THIS_MACHINE = ("--bind-to", "none", "--map-by", ":OVERSUBSCRIBE")
_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def command(
    launcher: str,
    ranks: int,
    *,
    program: str | Path = "",
    args: Sequence[str] = (),
    hosts: Sequence[str] = (),
    ranks_per_node: int = 1,
    cpus_per_rank: int | None = None,
) -> list[str]:
    """Build the command by which srun, ibrun or mpirun starts `ranks` ranks.

    The caller appends what the ranks run. `program` is the path of the launcher, `args` are its
    further options. Only srun uses `hosts` (the first ones, as many as needed) and the rest.
    """
    start = str(program or launcher)
    match launcher:
        case "mpirun":
            return [start, *args, "-n", str(ranks)]
        case "ibrun":
            return [start, "-n", str(ranks), "-o", "0", *args]
        case "srun":
            per_node = min(ranks, ranks_per_node)
            nodes = -(-ranks // per_node)
            places = [f"--nodes={nodes}", f"--nodelist={','.join(hosts[:nodes])}"]
            tasks = [f"--ntasks={ranks}", f"--ntasks-per-node={per_node}"]
            # srun does not inherit the job's --cpus-per-task in Slurm 22.05 to 23.02
            cpus = [f"--cpus-per-task={cpus_per_rank}"] if cpus_per_rank else []
            return [start, *places, *tasks, *cpus, *args]
    raise AssertionError(launcher)


def root_variables(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that let Open MPI start ranks as root; {} if this user is not root."""
    return {name: env.get(name, "1") for name in _AS_ROOT} if os.geteuid() == 0 else {}
