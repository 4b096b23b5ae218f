"""Data parallelism by hand over mpi4py: a broadcast, a hook per parameter, buckets, all-reduces.

It does a framework's work without a framework, to show what DDP and Horovod add to MPI's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

import numpy as np
import torch

from bench.backends import mpi_group
from bench.backends.buckets import buckets
from bench.backends.protocol import Backend, Reduction, Session
from bench.config import RunConfig
from bench.config.fields import MATCHED_BUCKET_MIB
from bench.launch.world import Launch
from bench.train.device import Device


class Handwritten(Backend):
    """A backend that copies rank 0's weights to all ranks once and averages gradients in each step.

    With overlap=off, exchanges begin after the backward pass and run one after the other. With
    bucket_mib=0, a bucket holds one parameter, as in most first implementations.
    """

    def __init__(self, config: RunConfig, launch: Launch, device: Device) -> None:
        super().__init__()
        # a context of its own: nothing else in the process can match our messages
        self._comm = mpi_group.world(config, launch).Dup()
        self.versions = mpi_group.versions()

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        broadcast(self._comm, model.state_dict().values())
        if config.exchange == "off":
            return Session(model, optimizer)
        return self._session(model, optimizer, config)

    def _session(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        return HandwrittenSession(self._comm, model, optimizer, config)

    def reduce_scalar(self, value: float, op: Reduction) -> float:
        mpi, reduced = mpi_group.library(), np.array([value], np.float64)
        self._comm.Allreduce(mpi.IN_PLACE, reduced, op=getattr(mpi, op.upper()))
        return float(reduced[0])

    def gather(self, value: Any) -> list[Any]:
        return list(self._comm.allgather(value))

    def barrier(self) -> None:
        self._comm.Barrier()

    def close(self) -> None:
        self._comm.Barrier()
        self._comm.Free()


class HandwrittenSession(Session):
    """A session that averages buckets in a fixed order. A full bucket waits for those before it."""

    def __init__(
        self, comm: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> None:
        super().__init__(model, optimizer)
        self._comm, self._overlaps, self._next = comm, config.overlap == "on", 0
        self._exchanging, self._finds_unused = True, config.unused_parameters
        self._parameters = trained = [p for p in model.parameters() if p.requires_grad]
        mib = MATCHED_BUCKET_MIB if config.bucket_cap_mib is None else config.bucket_cap_mib
        groups = buckets(trained, int(mib * 2**20), not config.unused_parameters)
        self._buckets = self._make_buckets(groups)
        for bucket in self._buckets if self._overlaps else ():
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._arrived, bucket))

    def _make_buckets(self, groups: Sequence[Sequence[torch.nn.Parameter]]) -> Sequence[Bucket]:
        return [Bucket(group) for group in groups]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self._exchanging = False
        try:
            yield
        finally:
            self._exchanging = True

    def _arrived(self, bucket: Bucket, _: torch.Tensor) -> None:
        """Count a ready gradient of `bucket`, start full buckets and let MPI make progress."""
        if not self._exchanging:
            return
        bucket.missing -= 1
        self._start_full()
        for started in self._buckets[: self._next]:
            started.progress()

    def _start_full(self) -> None:
        while self._next < len(self._buckets) and self._buckets[self._next].missing == 0:
            self._buckets[self._next].start(self._comm)
            self._next += 1

    def synchronize_gradients(self) -> None:
        """Finish exchanges. Without --unused-parameters, a missing gradient is a RuntimeError."""
        used = [p.grad is not None for p in self._parameters]
        if not self._finds_unused and not all(used):
            missing = f"{used.count(False)} parameters got no gradient"
            raise RuntimeError(f"{missing}; use --unused-parameters")
        for bucket in self._buckets:
            bucket.missing = 0
        if self._overlaps:
            self._start_full()
        for bucket in self._buckets:
            if not self._overlaps:  # the naive form: one after the other
                bucket.start(self._comm)
            bucket.finish()
            bucket.missing = len(bucket.parameters)
        self._next = 0
        if self._finds_unused:  # last: every rank has by now begun the same exchanges
            self._forget_unused(used)

    def sync_buffers(self) -> None:
        broadcast(self._comm, self.model.buffers())

    def exchange_bytes(self) -> list[int]:
        return [sum(p.nbytes for p in bucket.parameters) for bucket in self._buckets]

    def _forget_unused(self, used: Sequence[bool]) -> None:
        """Remove gradients of parameters that no rank used, so that no weight decay moves them."""
        used_by_any = np.array(used, np.int32)
        mpi = mpi_group.library()
        self._comm.Allreduce(mpi.IN_PLACE, used_by_any, op=mpi.MAX)
        for parameter, is_used in zip(self._parameters, used_by_any, strict=True):
            if not is_used:
                parameter.grad = None


class Bucket:
    """Gradients that are copied into one piece of memory and travel as one message."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.parameters, self.missing = parameters, len(parameters)
        # bfloat16 travels as float32, as in the other backends, and no type loses a bit to another
        kinds = {torch.float32 if p.dtype == torch.bfloat16 else p.dtype for p in parameters}
        kind = reduce(torch.promote_types, kinds)
        self.flat = torch.zeros(sum(p.numel() for p in parameters), dtype=kind)
        parts = self.flat.split([p.numel() for p in parameters])
        self.views = [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
        self._request: Any = None

    def start(self, comm: Any) -> None:
        """Start averaging all ranks' gradients, without waiting."""
        self.fill(comm.Get_size())
        self._request = comm.Iallreduce(mpi_group.library().IN_PLACE, self.flat.numpy())

    def progress(self) -> None:
        """Let MPI make progress on this exchange."""
        self._request.Test()

    def finish(self) -> None:
        """Wait for the means, and copy them into the gradients."""
        self._request.Wait()
        self.hand_out()

    def fill(self, ranks: int) -> None:
        """Copy in this rank's gradients divided by `ranks`, or zeros if a gradient is missing."""
        for view, parameter in zip(self.views, self.parameters, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                torch.div(parameter.grad.to(view), ranks, out=view)

    def hand_out(self) -> None:
        """Copy the bucket's values into the gradients."""
        for view, parameter in zip(self.views, self.parameters, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(view)


def broadcast(comm: Any, tensors: Iterable[torch.Tensor]) -> None:
    """Copy rank 0's values into all ranks' `tensors`, as bytes: any type and layout works."""
    for tensor in tensors:
        packed = tensor.detach().contiguous().reshape(-1)
        comm.Bcast(packed.view(torch.uint8).numpy(), root=0)
        if packed.data_ptr() != tensor.data_ptr():  # it had to be copied to be in order
            with torch.no_grad():
                tensor.copy_(packed.reshape(tensor.shape))
