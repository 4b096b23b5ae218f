"""Every rank keeps a part of each parameter, of its gradient and of the optimiser's state.

The parameters are gathered before the forward pass and kept until the backward pass has used them
(`reshard_after_forward=False`, as ZeRO-2 communicates); gradients are reduced and scattered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from bench.backends.ddp import Ddp
from bench.backends.protocol import Session
from bench.config import RunConfig

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


class Fsdp2(Ddp):
    """A group of parameters is one exchange: each child of the model, and what is left at its root.

    Without overlap there is one group, which is reduced when its last gradient has come. Without
    exchange nothing is divided.
    """

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
        if config.exchange == "off":
            return Session(model, optimizer)
        # a list or dict of modules has no forward pass; the root takes what it holds
        children = [m for m in model.children() if not isinstance(m, _CONTAINERS)]
        parts = [*children, model] if config.overlap == "on" else [model]
        mesh = init_device_mesh(config.device, (dist.get_world_size(),))
        # bfloat16 gradients travel as float32, as in the other backends
        wire = torch.float32 if config.precision == "bf16" else None
        policy = MixedPrecisionPolicy(reduce_dtype=wire)
        sizes, left = [], {*model.parameters()}
        for part in parts:
            held = left & {*part.parameters()}
            left -= held
            if held:
                sizes.append(sum(p.numel() * (wire or p.dtype).itemsize for p in held))
            if held or part is model:  # the root ends the backward pass of all
                fully_shard(part, mesh=mesh, reshard_after_forward=False, mp_policy=policy)
        (group,) = optimizer.param_groups
        group["params"] = [*model.parameters()]  # the parts, in place of the whole ones
        return Fsdp2Session(model, optimizer, sizes)


class Fsdp2Session(Session):
    """The model gathers, reduces and scatters in its own forward and backward passes."""

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, sizes: list[int]
    ) -> None:
        super().__init__(model, optimizer)
        self._sizes = sizes

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.model.set_requires_gradient_sync(True)

    def sync_buffers(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)

    def exchange_bytes(self) -> list[int]:
        """Of the gradients' groups; the parameters are gathered in the same ones."""
        return self._sizes
