"""No framework: one process, so that the loop needs no `if distributed`."""

from __future__ import annotations

from typing import Any

import torch

from bench.backends.protocol import Reduction, Session


class Single:
    """The common baseline of every comparison."""

    def __init__(self, *_: object) -> None:
        self.versions: dict[str, str] = {}

    def wrap(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, _: object) -> Session:
        return Session(model, optimizer)

    def reduce_scalar(self, value: float, op: Reduction) -> float:
        return float(value)

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass
