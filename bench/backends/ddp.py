"""PyTorch DistributedDataParallel over Gloo, or over MPI through a process group of our own."""

from __future__ import annotations

import gc
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench.backends import Reduction
from bench.config import MATCHED_BUCKET_MIB, RunConfig
from bench.launch import Launch

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class Ddp:
    """DDP wraps the model. `shipped` leaves every default of DDP alone; `matched` fixes the bucket and skips buffers."""

    def __init__(self, config: RunConfig, launch: Launch) -> None:
        self._options: dict[str, Any] = {}
        if config.settings == "matched":
            self._options = {"bucket_cap_mb": MATCHED_BUCKET_MIB, "forward_sync_buffers": False}
        if config.bucket_mib is not None:
            self._options["bucket_cap_mb"] = config.bucket_mib
        if config.transport == "mpi":
            from bench.backends import mpi_group

            mpi_group.init(launch)
            self.versions = mpi_group.versions()
        else:
            from bench.rendezvous import open_store

            store = dist.PrefixStore("gloo", open_store(config, launch))
            dist.init_process_group("gloo", store=store, rank=launch.rank, world_size=launch.size)
            self.versions = {}
        assert dist.get_world_size() == launch.size

    def wrap(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        self._optimizer = optimizer
        self._model = DistributedDataParallel(model, **self._options)
        return self._model, optimizer

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def finish_backward(self) -> None:
        pass  # DDP's backward returns with the mean in place

    def step(self) -> None:
        self._optimizer.step()

    def zero_grad(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def sync_buffers(self) -> None:
        for buffer in self._model.buffers():
            dist.broadcast(buffer, 0)

    def exchange_bytes(self) -> list[int]:
        """Buckets as rebuilt after the first step, in the order in which they are reduced."""
        sizes = self._model._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")
        return [int(size) for size in str(sizes).split(",") if size.strip()]

    def all_reduce(self, value: float, op: Reduction) -> float:
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, _OPS[op])
        return tensor.item()

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        dist.barrier()  # nobody leaves while another still exchanges
        # DDP's reducer keeps the group, and with it Gloo's threads, alive: left to the interpreter's exit, those threads
        # end about one run in five with "terminate called without an active exception", or never
        vars(self).pop("_model", None)  # absent where nothing was wrapped
        gc.collect()
        dist.destroy_process_group()
