"""A parameter server over mpi4py, the workers' side; the servers' is in server.py.

The hooks and buckets are those of hand-written data parallelism: what differs is where a full
bucket goes, to the server that holds it as a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from bench.backends.handwritten import Bucket, Handwritten, HandwrittenSession, broadcast
from bench.backends.protocol import Session
from bench.backends.ps.server import (
    CONTROL,
    Begin,
    CountPushes,
    Pull,
    Stop,
    introduce,
    split,
    tag_of,
)
from bench.config import RunConfig, UsageError
from bench.launch.world import Launch


class ParameterServer(Handwritten):
    """Workers are ranks 0 to world_size - 1 of MPI's world, servers come after them."""

    def _join(self, config: RunConfig, launch: Launch) -> Any:
        self._world, workers = split(config, launch)
        self.servers = introduce(self._world)
        self._pushed: Counter[str] = Counter()
        return workers

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        broadcast(self._comm, model.state_dict().values())
        if config.exchange == "off":
            return Session(model, optimizer)
        return ServedSession(self._world, self._comm, model, optimizer, config, self._pushed)

    def served(self) -> tuple[list[dict[str, Any]], int]:
        counts = None
        if self._comm.Get_rank() == 0:
            counts = [self._ask(server, CountPushes()) for server in self._of_servers()]
        return self._comm.bcast(counts), sum(self._comm.allgather(self._pushed.total()))

    def close(self) -> None:
        self._comm.Barrier()
        if self._comm.Get_rank() == 0:
            for server in self._of_servers():
                self._world.send(Stop(), dest=server, tag=CONTROL)
        self._comm.Free()
        self._world.Barrier()
        self._world.Free()

    def _of_servers(self) -> Iterable[int]:
        return range(self._comm.Get_size(), self._world.Get_size())

    def _ask(self, server: int, request: object) -> Any:
        self._world.send(request, dest=server, tag=CONTROL)
        return self._world.recv(source=server, tag=CONTROL)


class ServedSession(HandwrittenSession):
    """Keys are pushed as they fill. Synchronous: their means come back, and every worker steps.
    Asynchronous: the servers step, and what comes back are parameters that others moved as well.
    """

    _buckets: Sequence[Key]

    def __init__(
        self,
        world: Any,
        workers: Any,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        config: RunConfig,
        pushed: Counter[str],
    ) -> None:
        self._world, self._async, self._pushed = world, config.mode == "async", pushed
        super().__init__(workers, model, optimizer, config)
        self._begin()

    def _make_buckets(self, groups: Sequence[Sequence[torch.nn.Parameter]]) -> Sequence[Key]:
        workers, processes = self._comm.Get_size(), self._world.Get_size()
        servers = range(workers, processes)
        if len(groups) < len(servers):
            few = f"servers={len(servers)}, but the model's parameters make {len(groups)} key(s)"
            raise UsageError(f"{few}; use fewer servers, or a smaller --bucket-mib")
        holders = spread([sum(p.numel() for p in group) for group in groups], len(servers))
        return [
            Key(group, number, servers[holder], self._world, self._push, self._async)
            for number, (group, holder) in enumerate(zip(groups, holders, strict=True))
        ]

    def _push(self) -> float:
        """Count one more push; returns the learning rate at which it is to be applied."""
        self._pushed["pushes"] += 1
        return float(self.optimizer.param_groups[0]["lr"])

    def _begin(self) -> None:
        """Send the servers their keys and rank 0's parameters, before any worker pushes."""
        if self._comm.Get_rank() == 0:
            group = self.optimizer.param_groups[0]
            options = {name: group[name] for name in ("momentum", "weight_decay", "nesterov")}
            for server in {key.server: None for key in self._buckets}:
                server_keys = [key for key in self._buckets if key.server == server]
                values = {key.number: key.values() for key in server_keys}
                wire = {key.number: key.flat.dtype for key in server_keys}
                begin = Begin(values, wire, options)
                self._world.send(begin, dest=server, tag=CONTROL)
                self._world.recv(source=server, tag=CONTROL)
        self._comm.Barrier()

    def step(self) -> None:
        if not self._async:
            super().step()
            return
        for key in self._buckets:
            key.set_parameters()

    def sync_buffers(self) -> None:
        """With mode=async the parameters too: the servers', once all workers have pushed."""
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
        comm: Any,
        push: Callable[[], float],
        asynchronous: bool,
    ) -> None:
        super().__init__(parameters)
        self._async = asynchronous
        self.number, self.server, self._comm, self._push = number, server, comm, push
        self._rate, self._gradient = np.empty(1, np.float64), torch.empty_like(self.flat)
        self._requests: list[Any] = []

    def start(self, workers: Any) -> None:
        """Push the gradient, divided by the number of workers, and wait for nothing."""
        self.fill(workers.Get_size())
        # the sent memory must not change, and the answer is received into `flat`
        self._gradient.copy_(self.flat)
        self._rate[0] = self._push()
        tag = tag_of(self.number)
        self._requests = [
            self._comm.Irecv(self.flat.numpy(), self.server, tag + 1),
            self._comm.Isend(self._rate, self.server, tag),
            self._comm.Isend(self._gradient.numpy(), self.server, tag + 1),
        ]

    def progress(self) -> None:
        self._requests[0].Testall(self._requests)

    def finish(self) -> None:
        """Wait for the answer: a mean is handed out, parameters wait for the step."""
        self._requests[0].Waitall(self._requests)
        if not self._async:
            self.hand_out()

    def pull(self) -> None:
        """Fetch the server's present parameters."""
        self._comm.send(Pull(self.number), dest=self.server, tag=CONTROL)
        self._comm.Recv(self.flat.numpy(), self.server, tag_of(self.number) + 1)

    def values(self) -> torch.Tensor:
        """The parameters as one vector."""
        return torch.cat([p.detach().contiguous().reshape(-1) for p in self.parameters])

    def set_parameters(self) -> None:
        """Copy the received values into the parameters."""
        with torch.no_grad():
            for view, parameter in zip(self.views, self.parameters, strict=True):
                parameter.copy_(view)


def spread(sizes: Sequence[int], servers: int) -> list[int]:
    """Which server holds each key: the largest first, each to the one that holds least."""
    load, holder = [0] * servers, [0] * len(sizes)
    for key in sorted(range(len(sizes)), key=lambda key: (-sizes[key], key)):
        holder[key] = min(range(servers), key=lambda server: (load[server], server))
        load[holder[key]] += sizes[key]
    return holder
