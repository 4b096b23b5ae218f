"""The collectives of each framework, through its own calls: what an exchange of gradients rests on.

Every call takes and gives whole float32 tensors, adds where it reduces, and waits for the result;
all ranks call in the same order. Memory for results is kept from call to call where the framework
lets its user give it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from bench.backends import catalogue
from bench.config import RunConfig


class Collectives:
    """What a framework offers; `lacks` says of each collective that it does not offer why not."""

    lacks: Mapping[str, str] = {}

    def __init__(self, config: RunConfig) -> None:
        self.ranks = config.world_size
        self._kept: dict[tuple[int, torch.device], torch.Tensor] = {}

    def all_reduce(self, whole: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        """Every rank's part, by rank."""
        raise NotImplementedError

    def broadcast(self, whole: torch.Tensor) -> torch.Tensor:
        """Rank 0's."""
        raise NotImplementedError

    def reduce_scatter(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum."""
        raise NotImplementedError

    def _room(self, like: torch.Tensor, elements: int) -> torch.Tensor:
        """Memory for a result of that many elements, the same one every time."""
        key = elements, like.device
        if key not in self._kept:
            self._kept = {key: like.new_empty(elements)}
        return self._kept[key]


class OfTorch(Collectives):
    """torch.distributed on the process group that DDP uses."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        if config.transport == "mpi":
            self.lacks = {
                "reduce_scatter": "our process group over MPI has none: DDP asks for none"
            }

    def all_reduce(self, whole: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(whole)
        return whole

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        out = self._room(part, part.numel() * self.ranks)
        dist.all_gather(list(out.chunk(self.ranks)), part)
        return out

    def broadcast(self, whole: torch.Tensor) -> torch.Tensor:
        dist.broadcast(whole, 0)
        return whole

    def reduce_scatter(self, whole: torch.Tensor) -> torch.Tensor:
        out = self._room(whole, whole.numel() // self.ranks)
        dist.reduce_scatter_tensor(out, whole)
        return out


class OfHorovod(Collectives):
    """Horovod's own; a name of its own for each, as its cache of responses wants."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self._hvd: Any = importlib.import_module("horovod.torch")  # started by its backend

    def all_reduce(self, whole: torch.Tensor) -> torch.Tensor:
        reduced: torch.Tensor = self._hvd.allreduce_(whole, op=self._hvd.Sum, name="all_reduce")
        return reduced

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        gathered: torch.Tensor = self._hvd.allgather(part, name="all_gather")
        return gathered

    def broadcast(self, whole: torch.Tensor) -> torch.Tensor:
        got: torch.Tensor = self._hvd.broadcast_(whole, root_rank=0, name="broadcast")
        return got

    def reduce_scatter(self, whole: torch.Tensor) -> torch.Tensor:
        kept: torch.Tensor = self._hvd.reducescatter(whole, op=self._hvd.Sum, name="scatter")
        return kept


class OfMpi(Collectives):
    """MPI's own on its world, blocking, in the thread that calls."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        from mpi4py import MPI

        self._comm, self._in_place = MPI.COMM_WORLD, MPI.IN_PLACE

    def all_reduce(self, whole: torch.Tensor) -> torch.Tensor:
        self._comm.Allreduce(self._in_place, whole.numpy())
        return whole

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        out = self._room(part, part.numel() * self.ranks)
        self._comm.Allgather(part.numpy(), out.numpy())
        return out

    def broadcast(self, whole: torch.Tensor) -> torch.Tensor:
        self._comm.Bcast(whole.numpy(), root=0)
        return whole

    def reduce_scatter(self, whole: torch.Tensor) -> torch.Tensor:
        out = self._room(whole, whole.numel() // self.ranks)
        self._comm.Reduce_scatter_block(whole.numpy(), out.numpy())
        return out


def load(name: str, config: RunConfig) -> Collectives:
    """Those of the backend `name`, which has started; of PLAIN, where one over MPI has."""
    if name == catalogue.PLAIN:
        return OfMpi(config)
    module, _, attribute = catalogue.CATALOGUE[name].collectives.partition(":")
    found: Collectives = getattr(importlib.import_module(module), attribute)(config)
    return found
