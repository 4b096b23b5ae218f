"""A server process of the parameter server: it holds keys, and answers the workers that push.

A key is a bucket of parameters. A worker pushes a header and the key's gradient, and one answer
comes back: the mean of all workers' gradients (mode=sync), or the parameters after this one was
applied (mode=async; Dean et al. 2012, Large scale distributed deep networks).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bench.backends import mpi_group
from bench.config import RunConfig
from bench.launch.world import Launch

Tick = Callable[[], object]
CONTROL = 0  # tag of every message but a push
_POLL_S = 5e-5  # waiting servers sleep, so that workers have the cores


def tag_of(key: int) -> int:
    """Tag of a push's header; its numbers, and the answer, have the next tag."""
    return 2 * key + 1


@dataclass(frozen=True)
class Begin:
    """Worker 0 to each server: a training begins, with these keys."""

    values: Mapping[int, torch.Tensor]  # by key, the parameters as one vector
    wire: Mapping[int, torch.dtype]  # by key, the type in which its numbers travel
    optimizer: Mapping[str, Any]  # options of torch.optim.SGD, but the rate


@dataclass(frozen=True)
class Pull:
    """A worker to a server: send the key's present parameters."""

    key: int


@dataclass(frozen=True)
class CountPushes:
    """Worker 0 to a server: say what was pushed."""


@dataclass(frozen=True)
class Stop:
    """Worker 0 to a server: the run has ended."""


def split(config: RunConfig, launch: Launch) -> tuple[Any, Any]:
    """Communicators of all processes, and of the workers or, on a server, of the servers; all call.

    Raises as `mpi_group.world`.
    """
    # a context of its own: nothing else in the process can match our messages
    world = mpi_group.world(config, launch).Dup()
    serves = launch.rank >= config.world_size
    return world, world.Split(int(serves), launch.rank)


def introduce(world: Any, description: Any = None) -> list[Any]:
    """Each server's description, on all processes; a worker passes None."""
    return [server for server in world.allgather(description) if server is not None]


def serve(
    config: RunConfig, launch: Launch, describe: Callable[[dict[str, str]], Any], tick: Tick
) -> None:
    """Answer until worker 0 says that the run has ended; `tick` is called while it waits."""
    world, servers = split(config, launch)
    introduce(world, describe(mpi_group.versions()))
    server = Server(world, config.world_size, config.mode == "async")
    while server.answer(tick):
        pass
    servers.Free()
    world.Barrier()
    world.Free()


@dataclass
class HeldKey:
    """One key on its server."""

    parameter: torch.nn.Parameter  # a vector
    optimizer: torch.optim.Optimizer
    gradients: list[torch.Tensor]  # of each worker, in its type on the wire
    pushed: set[int] = field(default_factory=set)  # workers, since the last answer
    version: int = 0  # answers so far
    sent: Counter[int] = field(default_factory=Counter)  # the version that each worker has

    def mean(self) -> torch.Tensor:
        """Summed in the workers' order, not of arrival; each has divided by their number."""
        total = self.gradients[0].clone()
        for gradient in self.gradients[1:]:
            total += gradient
        return total

    def apply(self, gradient: torch.Tensor, rate: float) -> None:
        """One update by one worker's gradient."""
        self.parameter.grad = gradient.to(self.parameter.dtype)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()


class Server:
    """Keys of one server, and what was pushed to it."""

    def __init__(self, comm: Any, workers: int, asynchronous: bool) -> None:
        self._comm, self._workers, self._async = comm, workers, asynchronous
        self._status = mpi_group.status()
        self._keys: dict[int, HeldKey] = {}
        self._staleness: Counter[int] = Counter()  # pushes by updates missed since the last answer
        self._under_way: list[tuple[Any, torch.Tensor]] = []  # answers, and what they send

    def answer(self, tick: Tick) -> bool:
        """Handle the next message; False once there will be no more."""
        while not self._comm.Iprobe(status=self._status):
            tick()
            self._under_way = [
                (send, values) for send, values in self._under_way if not send.Test()
            ]
            time.sleep(_POLL_S)
        worker, tag = self._status.Get_source(), self._status.Get_tag()
        if tag != CONTROL:
            self._push((tag - 1) // 2, worker)
            return True
        match self._comm.recv(source=worker, tag=CONTROL):
            case Begin() as begin:
                self._keys = {key: self._key(key, begin) for key in begin.values}
                self._comm.send(None, dest=worker, tag=CONTROL)
            case Pull(key=key):
                self._send(key, [worker], self._keys[key].parameter.detach().clone())
            case CountPushes():
                self._comm.send(self._counts(), dest=worker, tag=CONTROL)
            case Stop():
                for send, _ in self._under_way:
                    send.Wait()
                return False
        return True

    def _key(self, key: int, begin: Begin) -> HeldKey:
        parameter = torch.nn.Parameter(begin.values[key])
        copies = 1 if self._async else self._workers
        return HeldKey(
            parameter=parameter,
            optimizer=torch.optim.SGD([parameter], lr=0.0, **begin.optimizer),
            gradients=[torch.empty(len(parameter), dtype=begin.wire[key]) for _ in range(copies)],
        )

    def _push(self, key: int, worker: int) -> None:
        entry, tag = self._keys[key], tag_of(key)
        rate = np.empty(1, np.float64)
        gradient = entry.gradients[0 if self._async else worker]
        self._comm.Recv(rate, source=worker, tag=tag)
        self._comm.Recv(gradient.numpy(), source=worker, tag=tag + 1)
        self._staleness[entry.version - entry.sent[worker]] += 1
        if self._async:
            entry.apply(gradient, float(rate[0]))
            self._answer(key, [worker], entry.parameter.detach().clone())
            return
        entry.pushed.add(worker)
        if len(entry.pushed) == self._workers:
            entry.pushed.clear()
            self._answer(key, range(self._workers), entry.mean())

    def _answer(self, key: int, workers: Sequence[int], values: torch.Tensor) -> None:
        entry = self._keys[key]
        entry.version += 1
        self._send(key, workers, values)
        for worker in workers:
            entry.sent[worker] = entry.version

    def _send(self, key: int, workers: Sequence[int], values: torch.Tensor) -> None:
        """Nothing may change `values` afterwards: a worker that computes receives them later."""

        travels = values.to(self._keys[key].gradients[0].dtype)
        for worker in workers:
            sent = self._comm.Isend(travels.numpy(), dest=worker, tag=tag_of(key) + 1)
            self._under_way.append((sent, travels))

    def _counts(self) -> dict[str, Any]:
        stale = [self._staleness[late] for late in range(max(self._staleness, default=-1) + 1)]
        return {"updates": self._staleness.total(), "staleness": stale}
