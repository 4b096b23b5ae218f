"""Horovod over MPI, over its own Gloo, or over NCCL, with the traps of its optimiser wrapper cured
here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bench.backends import mpi_group
from bench.backends.hvd_compression import Wire, broadcast
from bench.backends.hvd_nccl import nccl_versions
from bench.backends.hvd_start import start
from bench.backends.protocol import Reduction, Session
from bench.config import MATCHED_BUCKET_MIB, RunConfig
from bench.launch.world import Launch
from bench.train.device import Device

_MIB = 2**20


class Horovod:
    """Horovod wraps the optimiser. `shipped` leaves its fusion alone; `matched` exchanges DDP's
    buckets, one by one.
    """

    def __init__(self, config: RunConfig, launch: Launch, device: Device) -> None:
        self._hvd, self._rendezvous = start(config, launch)
        self.versions = {"horovod": __import__("horovod").__version__}
        if config.transport == "mpi":
            self.versions |= mpi_group.versions()
        if config.transport == "nccl":
            self.versions |= nccl_versions(self._hvd)

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        if config.sync_batchnorm:
            _join_statistics(model, self._hvd)
        # parameters and buffers only: broadcast_optimizer_state on a fresh optimiser takes a real
        # step with zero gradients
        broadcast(model.state_dict(), self._hvd)
        return HorovodSession(self._hvd, model, optimizer, config)

    def reduce_scalar(self, value: float, op: Reduction) -> float:
        ops = {"sum": self._hvd.Sum, "max": self._hvd.Max, "min": self._hvd.Min}
        tensor = torch.tensor([value], dtype=torch.float64)
        return float(self._hvd.allreduce(tensor, op=ops[op], name="scalar").item())

    def gather(self, value: Any) -> list[Any]:
        return list(self._hvd.allgather_object(value, name="object"))

    def barrier(self) -> None:
        self._hvd.barrier()

    def close(self) -> None:
        self._hvd.shutdown()
        if self._rendezvous is not None:
            self._rendezvous.stop()


class HorovodSession(Session):
    """Horovod wraps the optimiser, whose hooks start an exchange inside `backward`."""

    def __init__(
        self, hvd: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> None:
        self._hvd = hvd
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._finds_unused = config.unused_parameters
        self._matched: list[list[torch.Tensor]] = []
        if config.settings == "matched":
            bucket_bytes = int((config.bucket_mib or MATCHED_BUCKET_MIB) * _MIB)
            self._matched = list(buckets(self._parameters, bucket_bytes))
        # Horovod counts the backward passes of a step itself, so `no_sync` is the plain one
        wrapped = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=Wire(config),
            backward_passes_per_step=config.accumulate,
            **({"groups": self._matched} if self._matched else {}),
        )
        # wrapping forgets them: a group added later would get the class's learning rate and no
        # momentum
        wrapped.defaults = optimizer.defaults
        super().__init__(model, wrapped)
        self._wait = wrapped.synchronize

    def synchronize_gradients(self) -> None:
        """Wait for the exchange: before this, clipping or unscaling would race with it."""
        idle = self._unused_everywhere() if self._finds_unused else []
        self._wait()
        for parameter in idle:
            # Horovod sends zeros for it; kept, they would let weight decay and momentum move what
            # nobody used
            parameter.grad = None

    def step(self) -> None:
        # Horovod's own step would wait once more, and run every hook on the step twice;
        # synchronize_gradients has waited
        super(type(self.optimizer), self.optimizer).step()  # type: ignore[misc]  # the class is made at run time

    def sync_buffers(self) -> None:
        broadcast(dict(self.model.named_buffers()), self._hvd)

    def exchange_bytes(self) -> list[int]:
        """The matched buckets; as shipped Horovod fuses whatever is ready when its cycle ends."""
        return [sum(_size(p) for p in bucket) for bucket in self._matched]

    def _unused_everywhere(self) -> list[torch.nn.Parameter]:
        """Parameters that no rank gave a gradient; one small exchange a step, as DDP makes one to
        find the same.
        """
        used = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.int32)
        used = self._hvd.allreduce(used, op=self._hvd.Max, name="used parameters")
        return [
            p for p, somewhere in zip(self._parameters, used.tolist(), strict=True) if not somewhere
        ]


def buckets(parameters: Sequence[torch.Tensor], bucket_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Parameters in reverse order, cut as DDP cuts them: a bucket closes once its bytes reach the
    cap, no tensor is split.
    """
    bucket: list[torch.Tensor] = []
    for parameter in reversed([p for p in parameters if p.requires_grad]):
        bucket.append(parameter)
        if sum(_size(p) for p in bucket) >= bucket_bytes:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _join_statistics(model: torch.nn.Module, hvd: Any) -> None:
    """Replace every BatchNorm below `model` by Horovod's, which keeps its parameters and buffers,
    as torch's does for DDP.
    """
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.modules.batchnorm._BatchNorm):
                joined = hvd.SyncBatchNorm(
                    child.num_features,
                    child.eps,
                    child.momentum,
                    child.affine,
                    child.track_running_stats,
                )
                joined._parameters, joined._buffers = child._parameters, child._buffers
                setattr(module, name, joined.train(child.training))
