"""Two ranks show that Horovod, mpi4py and mpirun belong together: one world, and the right sum."""

from __future__ import annotations

import json
import sys
from importlib import metadata

import horovod.torch as hvd
import torch
from mpi4py import MPI

RANKS = 2


def problem() -> str | None:
    """Name what is wrong with this world, or None; its first rank then says which Horovod it is."""
    hvd.init()
    if not hvd.size() == MPI.COMM_WORLD.Get_size() == RANKS:
        sizes = f"Horovod sees {hvd.size()}, mpi4py {MPI.COMM_WORLD.Get_size()}"
        return f"{sizes} of {RANKS} ranks: this mpirun belongs to another MPI"
    built = [name for name in ("mpi", "gloo", "nccl") if getattr(hvd, f"{name}_built")()]
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
    if total != 3 or not {"mpi", "gloo"} <= {*built}:
        return f"the sum of rank + 1 is {total}, not 3, or one of mpi and gloo is not in {built}"
    if hvd.rank() == 0:
        wheel = metadata.distribution("horovod").read_text("direct_url.json")
        source = json.loads(wheel or "{}").get("url", "an index")
        print(f"Horovod {metadata.version('horovod')} with {', '.join(built)}, from {source}")
    return None


if __name__ == "__main__":
    sys.exit(problem())
