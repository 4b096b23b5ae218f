"""DDP with torch's PowerSGD hook: gradients are replaced by approximations of their mean."""

from __future__ import annotations

import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from bench.backends.ddp import Ddp, DdpSession
from bench.backends.protocol import Session
from bench.config import RunConfig

# The first step, from 0, that is compressed: the earliest that torch allows with warm start, as DDP
# forms its buckets anew after the first. It is inside the shortest warm-up; torch's own default is
# 1000, before which nothing but DDP's usual exchange would be timed.
START = 2


class PowerSgd(Ddp):
    """torch's hook at its defaults (rank 1, error feedback, warm start) but for `START`.

    A bucket makes three all-reduces, two of which wait for the one before.
    """

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        session = super().wrap(model, optimizer, config)
        assert isinstance(session, DdpSession)
        state = PowerSGDState(process_group=None, start_powerSGD_iter=START)
        session.model.register_comm_hook(state, powerSGD_hook)
        return PowerSgdSession(session.model, optimizer, state)


class PowerSgdSession(DdpSession):
    """DDP's, but for the bytes: torch's hook counts the numbers that it sends."""

    def __init__(
        self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, state: PowerSGDState
    ) -> None:
        super().__init__(model, optimizer, [])
        self._state = state

    def exchange_bytes(self) -> list[int]:
        """Of all exchanges of one compressed step together."""
        steps = self._state.iter - START
        if steps <= 0:
            return []
        size = next(self.model.parameters()).element_size()
        return [self._state.total_numel_after_compression // steps * size]
