"""The all-reduce of each framework, through its own call: what an exchange of gradients is made of.

A call takes a float32 tensor twice, adds over ranks in place, and waits for its result. A framework
that brings memory of its own returns the result instead. All ranks call in the same order.
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


def of_torch(_: RunConfig) -> Calls:
    """Offer torch.distributed on DDP's process group."""
    return {"all_reduce": lambda tensor, _: dist.all_reduce(tensor)}


def of_horovod(_: RunConfig) -> Calls:
    """Offer Horovod's own, by a fixed name, which its response cache needs."""
    hvd: Any = importlib.import_module("horovod.torch")  # started by its backend
    return {"all_reduce": lambda tensor, _: hvd.allreduce_(tensor, op=hvd.Sum, name="all_reduce")}


def of_mpi(_: RunConfig) -> Calls:
    """Offer MPI's own on its world, blocking, in the thread that calls."""
    from mpi4py import MPI

    world: Any = MPI.COMM_WORLD
    return {"all_reduce": lambda tensor, _: world.Allreduce(MPI.IN_PLACE, tensor.numpy())}


def all_reduce(name: str, config: RunConfig) -> Call:
    """Return the all-reduce of the started backend `name`; PLAIN needs one started over MPI."""
    plain = name == catalogue.PLAIN
    calls = of_mpi if plain else pkgutil.resolve_name(catalogue.CATALOGUE[name].collectives)
    call: Call = calls(config)["all_reduce"]
    return call
