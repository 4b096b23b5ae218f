"""A parameter server over mpi4py, the workers' side; the servers' is in server.py.

The hooks and buckets are those of hand-written data parallelism: what differs is where a full
bucket goes, to the server that holds it as a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bench.backends import mpi_group
from bench.backends.handwritten import Bucket, Handwritten, HandwrittenSession
from bench.backends.protocol import Session
from bench.backends.ps.server import GRADIENT, PULL, RATE, Server, tag_of
from bench.config import RunConfig
from bench.launch.world import Launch
from bench.train.device import Device


class ParameterServer(Handwritten):
    """Every rank trains, and a thread of it is the server of its share of the keys."""

    def __init__(self, config: RunConfig, launch: Launch, device: Device) -> None:
        super().__init__(config, launch, device)
        mpi_group.require_threads()
        # contexts of their own: a server must match no message that its rank waits for
        self._requests, self._answers = self._comm.Dup(), self._comm.Dup()
        self._server = Server(self._requests, self._answers, config.mode == "async")
        self._server.start()

    def _session(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        ends = self._requests, self._answers
        return ServedSession(self._server, ends, self._comm, model, optimizer, config)

    def close(self) -> None:
        self._comm.Barrier()
        self._server.stop()
        self._requests.Free()
        self._answers.Free()
        super().close()


class ServedSession(HandwrittenSession):
    """Keys are pushed as they fill. Synchronous: their means come back, and every worker steps.
    Asynchronous: the servers step, and what comes back are parameters that others moved as well.
    """

    _buckets: Sequence[Key]

    def __init__(
        self,
        server: Server,
        ends: tuple[Any, Any],
        workers: Any,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        config: RunConfig,
    ) -> None:
        self._ends, self._async = ends, config.mode == "async"
        super().__init__(workers, model, optimizer, config)
        group, rank = self.optimizer.param_groups[0], self._comm.Get_rank()
        held = [key for key in self._buckets if key.server == rank]
        server.hold(
            {key.number: (key.values(), key.flat.dtype) for key in held},
            {name: group[name] for name in ("momentum", "weight_decay", "nesterov")},
        )
        self._comm.Barrier()  # before any worker pushes

    def _make_buckets(self, groups: Sequence[Sequence[torch.nn.Parameter]]) -> Sequence[Key]:
        sizes = [sum(p.numel() for p in group) for group in groups]
        holders = spread(sizes, self._comm.Get_size())
        return [
            Key(group, number, holder, self._ends, self._rate, self._async)
            for number, (group, holder) in enumerate(zip(groups, holders, strict=True))
        ]

    def _rate(self) -> float:
        """Return the learning rate at which a push is to be applied."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        if not self._async:
            super().step()
            return
        for key in self._buckets:
            key.set_parameters()

    def sync_buffers(self) -> None:
        """Copy buffers; with mode=async also the servers' parameters, once all workers pushed."""
        if self._async:
            self._comm.Barrier()
            for key in self._buckets:
                key.pull()
                key.set_parameters()
        super().sync_buffers()


class Key(Bucket):
    """A bucket that one server holds."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        number: int,
        server: int,
        ends: tuple[Any, Any],
        rate: Callable[[], float],
        asynchronous: bool,
    ) -> None:
        super().__init__(parameters)
        self._async = asynchronous
        self.number, self.server, self._rate = number, server, rate
        self._requests, self._answers = ends
        self._header, self._gradient = np.empty(1, np.float64), torch.empty_like(self.flat)
        self._under_way: list[Any] = []

    def start(self, workers: Any) -> None:
        """Push the gradient, divided by the number of workers, and wait for nothing."""
        self.fill(workers.Get_size())
        # the sent memory must not change, and the answer is received into `flat`
        self._gradient.copy_(self.flat)
        self._header[0] = self._rate()
        send = self._requests.Isend
        self._under_way = [
            self._answers.Irecv(self.flat.numpy(), self.server, self.number),
            send(self._header, self.server, tag_of(self.number, RATE)),
            send(self._gradient.numpy(), self.server, tag_of(self.number, GRADIENT)),
        ]

    def progress(self) -> None:
        self._under_way[0].Testall(self._under_way)

    def finish(self) -> None:
        """Wait for the answer: a mean is handed out, parameters wait for the step."""
        self._under_way[0].Waitall(self._under_way)
        if not self._async:
            self.hand_out()

    def pull(self) -> None:
        """Fetch the server's present parameters."""
        self._requests.Send(self._header, self.server, tag_of(self.number, PULL))
        self._answers.Recv(self.flat.numpy(), self.server, self.number)

    def values(self) -> torch.Tensor:
        """Copy the parameters into one vector."""
        return torch.cat([p.detach().contiguous().reshape(-1) for p in self.parameters])

    def set_parameters(self) -> None:
        """Copy the received values into the parameters."""
        with torch.no_grad():
            for view, parameter in zip(self.views, self.parameters, strict=True):
                parameter.copy_(view)


def spread(sizes: Sequence[int], servers: int) -> list[int]:
    """Choose a server for each key: the largest first, each to the server that holds least."""
    load, holder = [0] * servers, [0] * len(sizes)
    for key in sorted(range(len(sizes)), key=lambda key: (-sizes[key], key)):
        holder[key] = min(range(servers), key=lambda server: (load[server], server))
        load[holder[key]] += sizes[key]
    return holder
