"""The collectives of each framework, through its own calls: the parts of a gradient exchange.

Every call takes and returns float32 tensors, reduces by adding, and waits for its result; all ranks
call in the same order. Memory for results is reused where the framework accepts the user's.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from bench.backends import catalogue
from bench.config import RunConfig


class Collectives:
    """What a framework offers; `lacks` has the reason for each collective that it does not."""

    lacks: Mapping[str, str] = {}

    def __init__(self, config: RunConfig) -> None:
        self.ranks = config.world_size
        self._results: dict[tuple[int, torch.device], torch.Tensor] = {}

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum all ranks' `tensor` [n]; the sum may overwrite `tensor`."""
        raise NotImplementedError

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        """Gather every rank's `part` [n] in rank order: [ranks * n]."""
        raise NotImplementedError

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy rank 0's `tensor` to every rank; this overwrites `tensor`."""
        raise NotImplementedError

    def reduce_scatter(self, tensor: torch.Tensor) -> torch.Tensor:
        """Compute this rank's part [n / ranks] of the sum of all ranks' `tensor` [n]."""
        raise NotImplementedError

    def _room(self, like: torch.Tensor, elements: int) -> torch.Tensor:
        """Provide memory for a result of that many elements, reused while the size stays."""
        key = elements, like.device
        if key not in self._results:
            self._results = {key: like.new_empty(elements)}
        return self._results[key]


class OfTorch(Collectives):
    """torch.distributed on the process group that DDP uses."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        if config.transport == "mpi":
            self.lacks = {
                "reduce_scatter": "our process group over MPI has none: DDP asks for none"
            }

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(tensor)
        return tensor

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        out = self._room(part, part.numel() * self.ranks)
        dist.all_gather(list(out.chunk(self.ranks)), part)
        return out

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        dist.broadcast(tensor, 0)
        return tensor

    def reduce_scatter(self, tensor: torch.Tensor) -> torch.Tensor:
        out = self._room(tensor, tensor.numel() // self.ranks)
        dist.reduce_scatter_tensor(out, tensor)
        return out


class OfHorovod(Collectives):
    """Horovod's own; each has a fixed name, which Horovod's response cache needs."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self._hvd: Any = importlib.import_module("horovod.torch")  # started by its backend

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        reduced: torch.Tensor = self._hvd.allreduce_(tensor, op=self._hvd.Sum, name="all_reduce")
        return reduced

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        gathered: torch.Tensor = self._hvd.allgather(part, name="all_gather")
        return gathered

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        received: torch.Tensor = self._hvd.broadcast_(tensor, root_rank=0, name="broadcast")
        return received

    def reduce_scatter(self, tensor: torch.Tensor) -> torch.Tensor:
        part: torch.Tensor = self._hvd.reducescatter(tensor, op=self._hvd.Sum, name="scatter")
        return part


class OfMpi(Collectives):
    """MPI's own on its world, blocking, in the thread that calls."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        from mpi4py import MPI

        self._comm, self._in_place = MPI.COMM_WORLD, MPI.IN_PLACE

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self._comm.Allreduce(self._in_place, tensor.numpy())
        return tensor

    def all_gather(self, part: torch.Tensor) -> torch.Tensor:
        out = self._room(part, part.numel() * self.ranks)
        self._comm.Allgather(part.numpy(), out.numpy())
        return out

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        self._comm.Bcast(tensor.numpy(), root=0)
        return tensor

    def reduce_scatter(self, tensor: torch.Tensor) -> torch.Tensor:
        out = self._room(tensor, tensor.numel() // self.ranks)
        self._comm.Reduce_scatter_block(tensor.numpy(), out.numpy())
        return out


def load(name: str, config: RunConfig) -> Collectives:
    """Load collectives of the started backend `name`; PLAIN needs a started backend over MPI."""
    if name == catalogue.PLAIN:
        return OfMpi(config)
    collectives: Collectives = pkgutil.resolve_name(catalogue.CATALOGUE[name].collectives)(config)
    return collectives
