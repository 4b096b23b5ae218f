"""The collectives of each framework, through its own calls: the parts of a gradient exchange.

A call takes a float32 tensor and room for the result, reduces by adding, and waits for its result,
which is then in that room: the tensor itself for `all_reduce` and `broadcast`, [ranks * n] for
`all_gather`, [n / ranks] for `reduce_scatter`. A framework that brings room of its own returns the
result instead. All ranks call in the same order.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from bench.backends import catalogue
from bench.config import RunConfig

Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None]
Calls = dict[str, Call]


def of_torch(config: RunConfig) -> Calls:
    """Offer torch.distributed on DDP's process group, which over MPI has no reduce-scatter."""
    calls: Calls = {
        "all_reduce": lambda tensor, _: dist.all_reduce(tensor),
        "all_gather": lambda part, room: dist.all_gather([*room.chunk(config.world_size)], part),
        "broadcast": lambda tensor, _: dist.broadcast(tensor, 0),
    }
    if config.transport != "mpi":
        calls["reduce_scatter"] = lambda tensor, room: dist.reduce_scatter_tensor(room, tensor)
    return calls


def of_horovod(config: RunConfig) -> Calls:
    """Offer Horovod's own; each has a fixed name, which Horovod's response cache needs."""
    hvd: Any = importlib.import_module("horovod.torch")  # started by its backend
    return {
        "all_reduce": lambda tensor, _: hvd.allreduce_(tensor, op=hvd.Sum, name="all_reduce"),
        "all_gather": lambda part, _: hvd.allgather(part, name="all_gather"),
        "broadcast": lambda tensor, _: hvd.broadcast_(tensor, root_rank=0, name="broadcast"),
        "reduce_scatter": lambda tensor, _: hvd.reducescatter(tensor, op=hvd.Sum, name="scatter"),
    }


def of_mpi(config: RunConfig) -> Calls:
    """Offer MPI's own on its world, blocking, in the thread that calls."""
    from mpi4py import MPI

    world: Any = MPI.COMM_WORLD
    return {
        "all_reduce": lambda tensor, _: world.Allreduce(MPI.IN_PLACE, tensor.numpy()),
        "all_gather": lambda part, room: world.Allgather(part.numpy(), room.numpy()),
        "broadcast": lambda tensor, _: world.Bcast(tensor.numpy(), root=0),
        "reduce_scatter": lambda tensor, room: world.Reduce_scatter_block(
            tensor.numpy(), room.numpy()
        ),
    }


def load(name: str, config: RunConfig) -> Calls:
    """Load collectives of the started backend `name`; PLAIN needs a started backend over MPI."""
    if name == catalogue.PLAIN:
        return of_mpi(config)
    calls: Calls = pkgutil.resolve_name(catalogue.CATALOGUE[name].collectives)(config)
    return calls
