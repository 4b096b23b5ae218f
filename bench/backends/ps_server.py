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
CONTROL = 0  # tag of what is no push
_POLL_S = 5e-5  # waiting servers sleep, so that workers have the cores


def tag_of(key: int) -> int:
    """Of a push's header; its numbers, and the answer, have the next one."""
    return 2 * key + 1


@dataclass(frozen=True)
class Begin:
    """Worker 0 to each server: a training begins, with these keys."""

    values: Mapping[int, torch.Tensor]  # by key, the parameters as one vector
    wire: Mapping[int, torch.dtype]  # by key, the type in which its numbers travel
    optimizer: Mapping[str, Any]  # options of torch.optim.SGD, but the rate


@dataclass(frozen=True)
class Pull:
    """A worker to a server: send the key's parameters as they stand."""

    key: int


@dataclass(frozen=True)
class Count:
    """Worker 0 to a server: say what was pushed."""


@dataclass(frozen=True)
class Stop:
    """Worker 0 to a server: the run has ended."""


def split(config: RunConfig, launch: Launch) -> tuple[Any, Any]:
    """Communicators of all processes, and of the workers; all call, servers get one of their own.

    Raises as `mpi_group.world`.
    """
    # a context of its own: nothing else in the process can match our messages
    everybody = mpi_group.world(config, launch).Dup()
    serves = launch.rank >= config.world_size
    return everybody, everybody.Split(int(serves), launch.rank)


def introduce(everybody: Any, own: Any = None) -> list[Any]:
    """What each server says of itself, to all; workers say nothing."""
    return [told for told in everybody.allgather(own) if told is not None]


def serve(
    config: RunConfig, launch: Launch, describe: Callable[[dict[str, str]], Any], tick: Tick
) -> None:
    """Answer until worker 0 says that the run has ended; `tick` is called while it waits."""
    everybody, servers = split(config, launch)
    introduce(everybody, describe(mpi_group.versions()))
    server = Server(everybody, config.world_size, config.mode == "async")
    while server.answer(tick):
        pass
    servers.Free()
    everybody.Barrier()
    everybody.Free()


@dataclass
class _Key:
    """One key on its server."""

    parameter: torch.nn.Parameter  # a vector
    optimizer: torch.optim.Optimizer
    arrived: list[torch.Tensor]  # of each worker, as it travelled
    there: set[int] = field(default_factory=set)
    version: int = 0  # times it was answered anew
    sent: Counter[int] = field(default_factory=Counter)  # the version that each worker has

    def mean(self) -> torch.Tensor:
        """In the workers' order, whoever came first; each has divided by their number."""
        total = self.arrived[0].clone()
        for gradient in self.arrived[1:]:
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
        self._keys: dict[int, _Key] = {}
        self._staleness: Counter[int] = Counter()  # pushes by updates missed since the last answer
        self._under_way: list[tuple[Any, torch.Tensor]] = []  # answers, and what they send

    def answer(self, tick: Tick) -> bool:
        """The next message; False once there will be no more."""
        while not self._comm.Iprobe(status=self._status):
            tick()
            self._under_way = [(sent, what) for sent, what in self._under_way if not sent.Test()]
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
            case Count():
                self._comm.send(self._counts(), dest=worker, tag=CONTROL)
            case Stop():
                for sent, _ in self._under_way:
                    sent.Wait()
                return False
        return True

    def _key(self, key: int, begin: Begin) -> _Key:
        parameter = torch.nn.Parameter(begin.values[key])
        one = 1 if self._async else self._workers
        return _Key(
            parameter=parameter,
            optimizer=torch.optim.SGD([parameter], lr=0.0, **begin.optimizer),
            arrived=[torch.empty(len(parameter), dtype=begin.wire[key]) for _ in range(one)],
        )

    def _push(self, key: int, worker: int) -> None:
        held, tag = self._keys[key], tag_of(key)
        rate = np.empty(1, np.float64)
        gradient = held.arrived[0 if self._async else worker]
        self._comm.Recv(rate, source=worker, tag=tag)
        self._comm.Recv(gradient.numpy(), source=worker, tag=tag + 1)
        self._staleness[held.version - held.sent[worker]] += 1
        if self._async:
            held.apply(gradient, float(rate[0]))
            self._answer(key, [worker], held.parameter.detach().clone())
            return
        held.there.add(worker)
        if len(held.there) == self._workers:
            held.there.clear()
            self._answer(key, range(self._workers), held.mean())

    def _answer(self, key: int, workers: Sequence[int], values: torch.Tensor) -> None:
        held = self._keys[key]
        held.version += 1
        self._send(key, workers, values)
        for worker in workers:
            held.sent[worker] = held.version

    def _send(self, key: int, workers: Sequence[int], values: torch.Tensor) -> None:
        """`values` must be nobody else's: a worker that computes takes them later."""
        travels = values.to(self._keys[key].arrived[0].dtype)
        for worker in workers:
            sent = self._comm.Isend(travels.numpy(), dest=worker, tag=tag_of(key) + 1)
            self._under_way.append((sent, travels))

    def _counts(self) -> dict[str, Any]:
        stale = [self._staleness[late] for late in range(max(self._staleness, default=-1) + 1)]
        return {"updates": self._staleness.total(), "staleness": stale}
