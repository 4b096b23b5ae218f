"""Horovod with op=Adasum: hooks make a rank's own update of a parameter, and Adasum joins them."""

from __future__ import annotations

from typing import Any

import torch

from bench.backends.hvd import Horovod, Wire, broadcast
from bench.backends.protocol import Session
from bench.config import RunConfig


class Adasum(Horovod):
    """Horovod's DistributedOptimizer with op=Adasum at its defaults."""

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        broadcast(model.state_dict(), self._hvd)
        wrapped = self._hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=Wire(config),
            backward_passes_per_step=config.accumulate,
            op=self._hvd.Adasum,
        )
        wrapped.defaults = optimizer.defaults  # as in HorovodSession
        return AdasumSession(self._hvd, model, wrapped)


class AdasumSession(Session):
    """The optimiser's hooks exchange updates during `backward`; its step waits for them."""

    def __init__(self, hvd: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model, optimizer)
        self._hvd = hvd

    def sync_buffers(self) -> None:
        broadcast(dict(self.model.named_buffers()), self._hvd)
