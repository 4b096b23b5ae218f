"""The servers of the parameter server: a thread of each rank holds keys and answers who pushes.

A key is a bucket of parameters. A worker pushes a header and the key's gradient, and one answer
comes back: the mean of all workers' gradients (mode=sync), or the parameters after this one was
applied (mode=async; Dean et al. 2012, Large scale distributed deep networks).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bench.backends import mpi_group

_POLL_S = 5e-5  # waiting servers sleep, so that workers have the cores
RATE, GRADIENT, PULL = range(3)  # what a worker sends of a key


def tag_of(key: int, kind: int) -> int:
    """Return the tag of a message of a worker; an answer has the key's number."""
    return 3 * key + kind


@dataclass
class HeldKey:
    """One key on its server."""

    parameter: torch.nn.Parameter  # a vector
    optimizer: torch.optim.Optimizer
    gradients: list[torch.Tensor]  # of each worker, in its type on the wire
    pushed: set[int] = field(default_factory=set)  # workers, since the last answer

    def mean(self) -> torch.Tensor:
        """Add gradients in the workers' order, not of arrival; each is divided by their number."""
        total = self.gradients[0].clone()
        for gradient in self.gradients[1:]:
            total += gradient
        return total

    def apply(self, gradient: torch.Tensor, rate: float) -> None:
        """Make one update by one worker's gradient."""
        self.parameter.grad = gradient.to(self.parameter.dtype)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()


class Server(threading.Thread):
    """This rank's server, from its start until `stop`.

    Workers send over `requests`, and receive over `answers`: each has its own numbers of messages.
    """

    def __init__(self, requests: Any, answers: Any, asynchronous: bool) -> None:
        super().__init__(name="parameter-server", daemon=True)
        self._requests, self._answers, self._async = requests, answers, asynchronous
        self._workers = requests.Get_size()
        self._status, self._stopping = mpi_group.status(), threading.Event()
        self._keys: dict[int, HeldKey] = {}
        self._under_way: list[tuple[Any, torch.Tensor]] = []  # answers, and what they send

    def hold(
        self, keys: Mapping[int, tuple[torch.Tensor, torch.dtype]], options: Mapping[str, Any]
    ) -> None:
        """Begin with these keys: the parameters of each, and the type in which it travels.

        `options` are those of torch.optim.SGD, but the rate. No worker may have pushed yet.
        """
        copies = 1 if self._async else self._workers
        self._keys = {}
        for key, (values, wire) in keys.items():
            parameter = torch.nn.Parameter(values)
            optimizer = torch.optim.SGD([parameter], lr=0.0, **options)
            gradients = [torch.empty(len(parameter), dtype=wire) for _ in range(copies)]
            self._keys[key] = HeldKey(parameter, optimizer, gradients)

    def run(self) -> None:
        while not self._stopping.is_set():
            if self._requests.Iprobe(status=self._status):
                self._handle(self._status.Get_source(), self._status.Get_tag())
                continue
            self._under_way = [(sent, held) for sent, held in self._under_way if not sent.Test()]
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End the thread; every worker must have received its last answer."""
        self._stopping.set()
        self.join()
        for sent, _ in self._under_way:
            sent.Wait()

    def _handle(self, worker: int, tag: int) -> None:
        key, kind = divmod(tag, 3)
        entry, number = self._keys[key], np.empty(1, np.float64)
        self._requests.Recv(number, source=worker, tag=tag)
        if kind == PULL:
            self._send(key, [worker], entry.parameter.detach().clone())
            return
        gradient = entry.gradients[0 if self._async else worker]
        self._requests.Recv(gradient.numpy(), source=worker, tag=tag_of(key, GRADIENT))
        if self._async:
            entry.apply(gradient, float(number[0]))
            self._send(key, [worker], entry.parameter.detach().clone())
            return
        entry.pushed.add(worker)
        if len(entry.pushed) == self._workers:
            entry.pushed.clear()
            self._send(key, range(self._workers), entry.mean())

    def _send(self, key: int, workers: Iterable[int], values: torch.Tensor) -> None:
        """Send `values`, which must not change: a worker that computes receives them later."""
        travels = values.to(self._keys[key].gradients[0].dtype)
        for worker in workers:
            sent = self._answers.Isend(travels.numpy(), dest=worker, tag=key)
            self._under_way.append((sent, travels))
