"""No framework: one process, every exchange an identity, so that the loop needs no `if
distributed`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from bench.backends.protocol import Reduction


class Single:
    """The common baseline of every comparison."""

    def __init__(self, *_: object) -> None:
        self.versions: dict[str, str] = {}

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        self._optimizer = optimizer
        return model, optimizer

    def no_sync(self) -> AbstractContextManager[object]:
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def synchronize_gradients(self) -> None:
        pass

    def step(self) -> None:
        self._optimizer.step()

    def zero_grad(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def sync_buffers(self) -> None:
        pass

    def exchange_bytes(self) -> list[int]:
        return []

    def reduce_scalar(self, value: float, op: Reduction) -> float:
        return float(value)

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass
