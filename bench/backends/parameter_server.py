"""A parameter server over mpi4py: each rank is a worker, and one of its threads serves some keys.

A key is a bucket of parameters. A worker pushes a key's gradient and learning rate, and gets one
answer. With mode=sync this is the mean of all workers' gradients. With mode=async it is the
parameters after the gradient was applied (Dean et al. 2012, Large scale distributed deep
networks). Hooks and buckets are those of handwritten.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bench.backends import mpi_group
from bench.backends.handwritten import Bucket, Handwritten, HandwrittenSession
from bench.backends.protocol import Session
from bench.config import RunConfig, UsageError
from bench.launch.world import Launch
from bench.train.device import Device

_POLL_S = 5e-5  # waiting servers sleep, so that workers have the cores


@dataclass
class HeldKey:
    """What a server holds of one key: parameters, their optimiser, and what workers pushed."""

    parameter: torch.nn.Parameter  # a vector
    optimizer: torch.optim.Optimizer
    pushes: list[torch.Tensor]  # of each worker, in its type on the wire: gradient, learning rate
    pushed: set[int] = field(default_factory=set)  # workers, since the last answer


class Server(threading.Thread):
    """The thread that serves this rank's keys. All ranks must create and stop theirs together.

    Workers send over the communicator `requests` and receive over `answers`. The number of a key
    is the tag of its messages.
    """

    def __init__(self, workers: Any, asynchronous: bool) -> None:
        super().__init__(name="parameter-server", daemon=True)
        self.requests, self.answers = workers.Dup(), workers.Dup()
        self.asynchronous, self._workers = asynchronous, workers.Get_size()
        self._status, self._stopping = mpi_group.library().Status(), threading.Event()
        self._keys: dict[int, HeldKey] = {}
        self._under_way: list[tuple[Any, torch.Tensor]] = []  # answers, and what they send

    def hold(self, keys: Iterable[Key], options: Mapping[str, Any]) -> None:
        """Hold `keys` instead of any earlier keys; call this before any worker pushes.

        `options` are those of torch.optim.SGD, without the learning rate.
        """
        self._keys = {}
        for key in keys:
            values = torch.cat([p.detach().contiguous().reshape(-1) for p in key.parameters])
            parameter = torch.nn.Parameter(values)
            optimizer = torch.optim.SGD([parameter], lr=0.0, **options)
            copies = 1 if self.asynchronous else self._workers
            pushes = [torch.empty_like(key.push) for _ in range(copies)]
            self._keys[key.number] = HeldKey(parameter, optimizer, pushes)

    def run(self) -> None:
        while not self._stopping.is_set():
            if self.requests.Iprobe(status=self._status):
                self._handle()
                continue
            self._under_way = [(sent, held) for sent, held in self._under_way if not sent.Test()]
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End the thread; every worker must have received its last answer."""
        self._stopping.set()
        self.join()
        for sent, _ in self._under_way:
            sent.Wait()
        self.requests.Free()
        self.answers.Free()

    def _handle(self) -> None:
        """Receive a push. With mode=async answer it, else answer all once all have pushed."""
        worker, number = self._status.Get_source(), self._status.Get_tag()
        key, empty = self._keys[number], self._status.Get_count() == 0
        push = key.pushes[0 if self.asynchronous else worker]
        self.requests.Recv(push.numpy(), source=worker, tag=number)
        if self.asynchronous:
            if not empty:
                key.parameter.grad = push[:-1].to(key.parameter.dtype)
                key.optimizer.param_groups[0]["lr"] = float(push[-1])
                key.optimizer.step()
            self._send(number, [worker], key.parameter.detach().clone().to(push.dtype))
            return
        key.pushed.add(worker)
        if len(key.pushed) == self._workers:
            key.pushed.clear()
            total = key.pushes[0][:-1].clone()  # each is divided by the number of workers
            for gradient in key.pushes[1:]:  # in the workers' order, not of arrival
                total += gradient[:-1]
            self._send(number, range(self._workers), total)

    def _send(self, number: int, workers: Iterable[int], values: torch.Tensor) -> None:
        """Start to send `values` to `workers`; do not change `values` until all have received."""
        for worker in workers:
            sent = self.answers.Isend(values.numpy(), dest=worker, tag=number)
            self._under_way.append((sent, values))


class ParameterServer(Handwritten):
    """A backend whose ranks all train, while a thread of each serves its share of parameters."""

    def __init__(self, config: RunConfig, launch: Launch, device: Device) -> None:
        super().__init__(config, launch, device)
        mpi = mpi_group.library()
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            lacks = f"{self.versions['mpi']} was built without MPI_THREAD_MULTIPLE"
            raise UsageError(f"{lacks}, which a server beside its rank needs; use another MPI")
        self._server = Server(self._comm, config.mode == "async")
        self._server.start()

    def _session(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        return ServedSession(self._server, self._comm, model, optimizer, config)

    def close(self) -> None:
        self._comm.Barrier()
        self._server.stop()
        super().close()


class ServedSession(HandwrittenSession):
    """A session that pushes keys to their servers. With mode=sync, mean gradients come back.
    With mode=async, the servers make the updates, and updated parameters come back.
    """

    _buckets: Sequence[Key]

    def __init__(
        self,
        server: Server,
        workers: Any,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        config: RunConfig,
    ) -> None:
        self._server = server
        super().__init__(workers, model, optimizer, config)
        group = self.optimizer.param_groups[0]
        options = {name: group[name] for name in ("momentum", "weight_decay", "nesterov")}
        rank = self._comm.Get_rank()
        server.hold([key for key in self._buckets if key.holder == rank], options)
        self._comm.Barrier()  # before any worker pushes

    def _make_buckets(self, groups: Sequence[Sequence[torch.nn.Parameter]]) -> Sequence[Key]:
        sizes = [sum(p.numel() for p in group) for group in groups]
        holders = spread(sizes, self._comm.Get_size())
        settings = self.optimizer.param_groups[0]
        return [
            Key(group, number, holder, self._server, settings)
            for number, (group, holder) in enumerate(zip(groups, holders, strict=True))
        ]

    def step(self) -> None:
        if not self._server.asynchronous:
            super().step()
            return
        for key in self._buckets:
            key.set_parameters()

    def sync_buffers(self) -> None:
        """Copy rank 0's buffers; with mode=async, first fetch the servers' latest parameters."""
        if self._server.asynchronous:
            self._comm.Barrier()
            for key in self._buckets:
                key.pull()
                key.set_parameters()
        super().sync_buffers()


class Key(Bucket):
    """A bucket that rank `holder` serves as key `number`. `settings` has the optimiser's 'lr'."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        number: int,
        holder: int,
        server: Server,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(parameters)
        self.number, self.holder, self._server, self._settings = number, holder, server, settings
        # the sent memory must not change, and the answer is received into `flat`
        self.push = self.flat.new_empty(len(self.flat) + 1)
        self._under_way: list[Any] = []

    def start(self, workers: Any) -> None:
        """Begin to push the learning rate, and the gradients divided by the number of workers."""
        self.fill(workers.Get_size())
        self.push[:-1].copy_(self.flat)
        self.push[-1] = self._settings["lr"]
        self._under_way = [
            self._server.answers.Irecv(self.flat.numpy(), self.holder, self.number),
            self._server.requests.Isend(self.push.numpy(), self.holder, self.number),
        ]

    def progress(self) -> None:
        self._under_way[0].Testall(self._under_way)

    def finish(self) -> None:
        """Wait for the answer; with mode=sync, copy the means into the gradients."""
        self._under_way[0].Waitall(self._under_way)
        if not self._server.asynchronous:
            self.hand_out()

    def pull(self) -> None:
        """Fetch the server's present parameters into `flat`, for `set_parameters` to copy."""
        self._server.requests.Send(np.empty(0, np.uint8), self.holder, self.number)
        self._server.answers.Recv(self.flat.numpy(), self.holder, self.number)

    def set_parameters(self) -> None:
        """Copy the received values into the parameters."""
        with torch.no_grad():
            for view, parameter in zip(self.views, self.parameters, strict=True):
                parameter.copy_(view)


def spread(sizes: Sequence[int], servers: int) -> list[int]:
    """Return each key's server. Keys go, largest first, to the server that holds least so far."""
    load, holder = [0] * servers, [0] * len(sizes)
    for key in sorted(range(len(sizes)), key=lambda key: (-sizes[key], key)):
        holder[key] = min(range(servers), key=lambda server: (load[server], server))
        load[holder[key]] += sizes[key]
    return holder
