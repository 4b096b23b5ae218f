"""DDP averages the gradients; each rank then updates its part of the parameters, and sends it."""

from __future__ import annotations

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from bench.backends.ddp import Ddp
from bench.backends.protocol import Session
from bench.config import RunConfig


class Zero1(Ddp):
    """torch's ZeroRedundancyOptimizer over DDP, at its defaults: a broadcast of each parameter.

    Without exchange the ranks keep all of the optimiser: each trains by itself.
    """

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        session = super().wrap(model, optimizer, config)
        if config.exchange == "on":
            session.optimizer = ZeroRedundancyOptimizer(
                model.parameters(), type(optimizer), **optimizer.defaults
            )
        return session
