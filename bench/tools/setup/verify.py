"""Two ranks show that Horovod, mpi4py and mpirun belong together: one world, and the right sum."""

from __future__ import annotations

import json
import sys
from importlib import metadata

import horovod.torch as hvd
import torch
from mpi4py import MPI

hvd.init()
sizes = (hvd.size(), MPI.COMM_WORLD.Get_size())
if sizes != (2, 2):
    sys.exit(f"Horovod and mpi4py see {sizes} ranks, not 2: this mpirun belongs to another MPI")
built = [name for name in ("mpi", "gloo", "nccl") if getattr(hvd, f"{name}_built")()]
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).item()
if total != 3 or not {"mpi", "gloo"} <= {*built}:
    sys.exit(f"the sum of rank + 1 is {total}, not 3, or mpi or gloo is missing: {built}")
if hvd.rank() == 0:
    wheel = json.loads(metadata.distribution("horovod").read_text("direct_url.json") or "{}")
    source = wheel.get("url", "an index")
    print(f"Horovod {metadata.version('horovod')} with {', '.join(built)}, from {source}")
