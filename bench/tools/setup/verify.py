"""Two ranks show that Horovod, mpi4py and mpirun belong together: one world, and the right sum."""

from __future__ import annotations

import sys
from pathlib import Path

import horovod
import horovod.torch as hvd
import torch
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # not installed with --into-active

from bench.tools.setup.origin import origin, transports


def problem(world_size: int) -> str | None:
    """Name what is wrong with this world, or None; its first rank then says which Horovod it is."""
    hvd.init()
    sizes = {"Horovod": hvd.size(), "mpi4py": MPI.COMM_WORLD.Get_size()}
    if wrong := [f"{name} sees {size}" for name, size in sizes.items() if size != world_size]:
        return f"{', '.join(wrong)} of {world_size} ranks: this mpirun belongs to another MPI"
    built = {name: bool(getattr(hvd, f"{name}_built")()) for name in ("mpi", "gloo", "nccl")}
    source = origin(built)
    if not (built["mpi"] and built["gloo"]):
        return f"Horovod was built without {'Gloo' if built['mpi'] else 'MPI'}"
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
    expected = world_size * (world_size + 1) / 2
    if hvd.rank() == 0 and total == expected:
        print(f"Horovod {horovod.__version__} {transports(built)}: {source}")
    return None if total == expected else f"the sum of rank + 1 is {total}, not {expected}"


if __name__ == "__main__":
    sys.exit(problem(int(sys.argv[1])))
