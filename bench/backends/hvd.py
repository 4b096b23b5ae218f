"""Horovod over MPI, NCCL or its own Gloo; only this file deals with its wrapped optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bench.backends import mpi_group
from bench.backends.buckets import buckets
from bench.backends.hvd_start import ONE_EXCHANGE_MIB, start
from bench.backends.protocol import Backend, Reduction, Session
from bench.config import RunConfig, UsageError
from bench.launch.world import Launch
from bench.train.device import Device

_Context = tuple[torch.dtype, list[int] | None]


class Horovod(Backend):
    """The backend of Horovod, with its own fusion (settings=shipped) or DDP's buckets (matched).

    With overlap=off one group holds all gradients, and Horovod reduces it when all are ready.
    With exchange=off the optimiser is not wrapped, but Horovod's own thread still runs.
    """

    def __init__(self, config: RunConfig, launch: Launch, device: Device) -> None:
        super().__init__()
        self._hvd, self._rendezvous = start(config, launch)
        self.versions["horovod"] = __import__("horovod").__version__
        if config.transport == "mpi":
            self.versions |= mpi_group.versions()

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        # not broadcast_optimizer_state: on a fresh optimiser it takes a step with zero gradients
        broadcast(model.state_dict(), self._hvd)
        if config.exchange == "off":
            return Session(model, optimizer)
        return HorovodSession(self._hvd, model, optimizer, config)

    def reduce_scalar(self, value: float, op: Reduction) -> float:
        hvd_op = getattr(self._hvd, op.title())  # Sum, Max or Min
        tensor = torch.tensor([value], dtype=torch.float64)
        return float(self._hvd.allreduce(tensor, op=hvd_op, name="scalar").item())

    def all_reduce(self, tensor: torch.Tensor) -> None:
        # by a fixed name, which Horovod's response cache needs
        self._hvd.allreduce_(tensor, op=self._hvd.Sum, name="all_reduce")

    def gather(self, value: Any) -> list[Any]:
        return list(self._hvd.allgather_object(value, name="object"))

    def barrier(self) -> None:
        self._hvd.barrier()

    def close(self) -> None:
        self.barrier()  # a rank that leaves with an error ends one that has yet to say why
        self._hvd.shutdown()
        if self._rendezvous is not None:
            self._rendezvous.stop()


class HorovodSession(Session):
    """A session whose optimiser Horovod wraps. Horovod's hooks start exchanges in `backward`."""

    def __init__(
        self, hvd: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> None:
        self._hvd = hvd
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._finds_unused = config.unused_parameters
        self._buckets: list[list[torch.Tensor]] = []
        if config.bucket_cap_mib is not None:
            cap_bytes = int(config.bucket_cap_mib * 2**20)
            self._buckets = buckets(self._parameters, cap_bytes, not config.unused_parameters)
        if config.overlap == "off":
            # Horovod would cut its one group to the size of its fusion buffer
            total_mib = sum(p.nbytes for bucket in self._buckets for p in bucket) / 2**20
            if total_mib > ONE_EXCHANGE_MIB:
                rule = f"overlap=off exchanges all {total_mib:.0f} MiB of gradients at once"
                most = f"Horovod at most {ONE_EXCHANGE_MIB} MiB"
                raise UsageError(f"{rule}, {most}; use a smaller --model")
        # Horovod counts the backward passes of a step itself, so `no_sync` is the plain one
        wrapped = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=Wire(config),
            backward_passes_per_step=config.accumulate,
            **({"groups": self._buckets} if self._buckets else {}),
        )
        super().__init__(model, wrapped)
        self._wait = wrapped.synchronize

    def synchronize_gradients(self) -> None:
        """Wait until all exchanges have ended; only then may gradients be clipped."""
        idle = self._unused_everywhere() if self._finds_unused else []
        self._wait()
        for parameter in idle:  # Horovod's zeros would let weight decay and momentum move it
            parameter.grad = None

    def step(self) -> None:
        # Horovod's own step would wait once more, and run every hook on the step twice
        super(type(self.optimizer), self.optimizer).step()  # type: ignore[misc]  # the class is made at run time

    def sync_buffers(self) -> None:
        broadcast(dict(self.model.named_buffers()), self._hvd)

    def exchange_bytes(self) -> list[int]:
        """List each bucket's bytes; empty if Horovod chooses at run time what to fuse."""
        return [sum(p.nbytes for p in bucket) for bucket in self._buckets]

    def _unused_everywhere(self) -> list[torch.nn.Parameter]:
        """Return the parameters to which no rank gave a gradient. All ranks must call this."""
        used = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.int32)
        used = self._hvd.allreduce(used, op=self._hvd.Max, name="used parameters")
        return [p for p, by_any in zip(self._parameters, used.tolist(), strict=True) if not by_any]


class Wire:
    """A compressor for Horovod that makes gradients contiguous and sends bfloat16 as float32."""

    def __init__(self, config: RunConfig) -> None:
        # bfloat16 gradients travel as float32: exact, twice the bytes, and as in the DDP backend
        self._dtype = torch.float32 if config.precision == "bf16" else None

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, _Context]:
        """Return `tensor` as it is sent, and what `decompress` needs to restore type and layout."""
        order, sent = None, tensor
        if not tensor.is_contiguous():
            # dimensions from slowest to fastest in memory: [0, 2, 3, 1] for channels_last
            strides = tensor.stride()
            order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
            sent = tensor.permute(order).contiguous()  # no copy of a channels_last tensor
        return sent if self._dtype is None else sent.to(self._dtype), (tensor.dtype, order)

    def decompress(self, tensor: torch.Tensor, context: _Context) -> torch.Tensor:
        """Return `tensor` in the type and the order of dimensions that `compress` was given."""
        back, order = tensor.to(context[0]), context[1]
        return back if order is None else back.permute([order.index(d) for d in range(len(order))])


def broadcast(tensors: Mapping[str, torch.Tensor], hvd: Any) -> None:
    """Copy rank 0's values into all ranks' `tensors`, as bytes: any type and layout works."""
    packed = {name: tensor.detach().contiguous().reshape(-1) for name, tensor in tensors.items()}
    flat = {name: tensor.view(torch.uint8) for name, tensor in packed.items()}
    hvd.broadcast_parameters(flat, root_rank=0)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if packed[name].data_ptr() != tensor.data_ptr():  # it had to be copied to be in order
                tensor.copy_(packed[name].reshape(tensor.shape))
