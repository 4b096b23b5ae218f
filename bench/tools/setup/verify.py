"""Two ranks show that Horovod, mpi4py and mpirun belong together: one world, and the right sum."""

from __future__ import annotations

import sys

import horovod.torch as hvd
import torch
from mpi4py import MPI


def problem(world_size: int) -> str | None:
    """What is wrong with this world, or None."""
    hvd.init()
    sizes = {"Horovod": hvd.size(), "mpi4py": MPI.COMM_WORLD.Get_size()}
    if wrong := [f"{name} sees {size}" for name, size in sizes.items() if size != world_size]:
        return f"{', '.join(wrong)} of {world_size} ranks: this mpirun belongs to another MPI"
    if not (hvd.mpi_built() and hvd.gloo_built()):
        return f"Horovod was built without {'Gloo' if hvd.mpi_built() else 'MPI'}"
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
    expected = world_size * (world_size + 1) / 2
    return None if total == expected else f"the sum of rank + 1 is {total}, not {expected}"


if __name__ == "__main__":
    sys.exit(problem(int(sys.argv[1])))
