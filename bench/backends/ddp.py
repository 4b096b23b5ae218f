"""PyTorch DistributedDataParallel over Gloo, NCCL, or MPI by the process group of mpi_group.py."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

# before any group exists: its functions would keep the first one for good, as a default argument
import torch.distributed.nn.functional
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from bench.backends.protocol import Backend, Reduction, Session
from bench.config import RunConfig
from bench.launch.world import Launch
from bench.train.device import Device

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
# scalars stay on the host: NCCL would queue them behind gradients
_GROUPS = {"gloo": "gloo", "nccl": "cpu:gloo,cuda:nccl"}


class Ddp(Backend):
    """The backend of DDP. settings=matched fixes bucket sizes and broadcasts no buffers in a step.

    With overlap=off one bucket holds all gradients, and DDP reduces it when all are ready.
    With exchange=off DDP stays in the state of its `no_sync`.
    """

    def __init__(self, config: RunConfig, launch: Launch, device: Device) -> None:
        super().__init__()
        self._device = device
        if config.transport == "mpi":
            from bench.backends import mpi_group

            mpi_group.init(config, launch)
            self.versions = mpi_group.versions()
        else:
            from bench.launch.rendezvous import open_store

            store = dist.PrefixStore("ddp", open_store(config, launch))
            group = _GROUPS[config.transport]
            dist.init_process_group(group, store=store, rank=launch.rank, world_size=launch.size)
        assert dist.get_world_size() == launch.size

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        options: dict[str, Any] = {}  # those that the config leaves alone stay at their defaults
        if config.settings == "matched":
            options["forward_sync_buffers"] = False
        if config.bucket_cap_mib is not None:
            options["bucket_cap_mb"] = config.bucket_cap_mib
        if config.unused_parameters:
            options["find_unused_parameters"] = True
        if config.device == "cuda":
            options["device_ids"] = [self._device.torch_device]
        wrapped = DistributedDataParallel(model, **options)
        # bfloat16 gradients travel as float32: Horovod cannot add bfloat16, and adding it in one
        # framework alone would round more
        if config.precision == "bf16":
            wrapped.register_comm_hook(None, _average_in_float32)
        wrapped.require_backward_grad_sync = config.exchange == "on"
        return DdpSession(wrapped, optimizer)

    def reduce_scalar(self, value: float, op: Reduction) -> float:
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, _OPS[op])
        return tensor.item()

    def all_reduce(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        # on the host, in every transport alike: NCCL's own barrier is a kernel among kernels
        self.reduce_scalar(0.0, "sum")

    def close(self) -> None:
        self.barrier()  # no rank leaves while another still exchanges
        # A group that something refers to, such as DDP's reducer, keeps its threads, and Gloo's
        # sometimes abort or hang at the interpreter's exit. So every session must be gone by now.
        gc.collect()
        dist.destroy_process_group()


class DdpSession(Session):
    """A session whose model DDP wraps. `backward` replaces gradients by their means over ranks."""

    model: DistributedDataParallel

    def no_sync(self) -> AbstractContextManager[object]:
        return self.model.no_sync()

    @property
    def broadcasts_buffers(self) -> bool:
        return bool(self.model.will_sync_module_buffers())

    def sync_buffers(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)

    def exchange_bytes(self) -> list[int]:
        """List each bucket's bytes in reduction order; empty until DDP has rebuilt its buckets."""
        rebuilt = "" if self.model.find_unused_parameters else "rebuilt_"
        sizes = self.model._get_ddp_logging_data().get(f"{rebuilt}bucket_sizes", "")
        return [int(size) for size in str(sizes).split(",") if size.strip()]


def _average_in_float32(_: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average a bucket of bfloat16 gradients in float32, as a communication hook that DDP calls."""
    gradients = bucket.buffer()
    sent = gradients.to(torch.float32).div_(dist.get_world_size())

    def unpack(reduced: Future[list[torch.Tensor]]) -> torch.Tensor:
        (mean,) = reduced.value()
        return gradients.copy_(mean)

    future = dist.all_reduce(sent, async_op=True).get_future()
    unpacked: Future[torch.Tensor] = future.then(unpack)
    return unpacked


_average_in_float32.__annotations__.clear()  # DDP compares them with types, and here they are text
