"""Models that draw and reassign, and planted faults of an exchange; one rank of their trial.

    mpirun -n 2 python -m tests.bench.parity_worker ddp gloo

Rank 0 prints what parity says of each model and fault as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench.backends.protocol import Session
from bench.config import RunConfig
from bench.instrument.parity import Parity
from bench.models import build_model
from bench.train.loop import Input, Loop

Parameters = dict[str, nn.Parameter]
MODELS = ("with_state", "forgetful", "recomputed", "unsteady", "moody")


class Forgetful(nn.Module):
    """Draws from all random numbers, and gives buffers and attributes new values."""

    mean: torch.Tensor
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.passes, self.history = 0, [1.0]
        self.drawn = np.random.default_rng(3)
        self.cache: dict[str, torch.Tensor] = {}
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        self.history.append(float(self.passes))
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        self.total += self.passes
        self.cache["last"] = self.mean + self.passes
        drawn = random.random() + float(np.random.random()) + self.drawn.random()
        return x * (1 + drawn + self.total + sum(self.history)) + self.cache["last"]


class Odd(nn.Module):
    """Holds an expanded tensor, a parameter of no elements, one in a list, one its pass writes."""

    def __init__(self) -> None:
        super().__init__()
        self.expanded = torch.ones(1).expand(4)
        self.empty, self.scale = nn.Parameter(torch.zeros(0)), nn.Parameter(torch.ones(1))
        self.held = [self.scale]
        self.written = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.written.clamp_(max=2.0)
        return x * self.expanded[0] * self.written * self.held[0] + self.empty.sum()


class Recomputed(nn.Sequential):
    """A stack that is computed again in backward, as older checkpoints do it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x.requires_grad_(), use_reentrant=True)  # type: ignore[no-any-return]


class Times(nn.Module):
    """Multiplies by a factor that each pass makes."""

    def __init__(self, factor: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor(x)  # type: ignore[no-any-return]


def rounds(x: torch.Tensor) -> torch.Tensor:
    """Round otherwise each time, as kernels do that add in no fixed order."""
    drawn = torch.Generator().manual_seed(random.SystemRandom().getrandbits(62))
    return 1 + 1e-6 * torch.rand(x.shape, generator=drawn)


def with_state(classes: int) -> nn.Sequential:
    """Build a model whose forward passes draw random numbers and change buffers."""
    parts = [nn.Flatten(), nn.Linear(3 * 8 * 8, 8), nn.BatchNorm1d(8), nn.Dropout()]
    return nn.Sequential(*parts, nn.Linear(8, classes))


def forgetful(classes: int) -> nn.Module:
    return nn.Sequential(Forgetful(), *with_state(classes))


def odd(classes: int) -> nn.Module:
    return nn.Sequential(Odd(), *with_state(classes))


def recomputed(classes: int) -> nn.Module:
    return nn.Sequential(Recomputed(*with_state(classes)))


def unsteady(classes: int) -> nn.Module:
    return nn.Sequential(Times(rounds), *with_state(classes))


def moody(classes: int) -> nn.Module:
    return nn.Sequential(*with_state(classes), Times(lambda x: random.SystemRandom().random()))


def nothing(classes: int) -> nn.Module:
    return nn.Sequential(*with_state(classes), Times(lambda x: 0))


def scale(parameters: Parameters) -> None:
    for p in parameters.values():
        assert p.grad is not None
        p.grad.mul_(10)


def drop(parameters: Parameters) -> None:
    [*parameters.values()][-1].grad = None


def swap(parameters: Parameters) -> None:
    """Exchange the gradients of two tensors of one shape: BatchNorm's."""
    *_, first, second = (p for p in parameters.values() if p.shape == (8,))
    first.grad, second.grad = second.grad, first.grad


def delay(parameters: Parameters) -> None:
    """Give each step the gradients of the step before."""
    for p in parameters.values():
        assert p.grad is not None
        late, p.late = getattr(p, "late", p.grad), p.grad.clone()  # type: ignore[attr-defined]
        p.grad = late.clone()


FAULTS: dict[str, Callable[[Parameters], None]] = {
    "none": lambda parameters: None,
    **{fault.__name__: fault for fault in (scale, drop, swap, delay)},
}


def of(model: str, **fields: Any) -> RunConfig:
    """Configure a run of one of these models."""
    return RunConfig(batch_per_rank=4, model=f"tests.bench.parity_worker:{model}", **fields)


def train(
    config: RunConfig,
    backend: Any,
    fault: Callable[[Parameters], None],
    rank: int = 0,
    **options: Any,
) -> tuple[Parity, nn.Module]:
    """Train four steps, checked if there are options; return the check and the model."""
    torch.manual_seed(0)
    network = build_model(config, 10)
    shard = torch.Generator().manual_seed(rank)
    batches = iter([(torch.randn(4, 3, 8, 8, generator=shard), torch.arange(4)) for _ in range(4)])
    parity, samples = (
        Parity(config, backend, network, **options),
        Input(config, batches, torch.device("cpu")),
    )
    loop = Loop(config, backend, network, samples, observer=parity if options else None)
    exchange = loop.session.synchronize_gradients

    def wrong() -> None:
        exchange()
        fault(dict(network.named_parameters()))

    session: Session = loop.session
    session.synchronize_gradients = wrong  # type: ignore[method-assign]
    for _ in range(4):
        loop.step()
    return parity, network


def main(name: str, transport: str) -> None:
    from bench import backends
    from bench.launch import world
    from bench.launch.resources import environment
    from bench.train import device

    place = world.discover(os.environ)
    cell: dict[str, Any] = {"backend": name, "transport": transport, "world_size": place.size}
    config = of("with_state", max_lr=1e-3, **cell)
    os.environ.update(environment(config, place, 1, os.environ))
    torch.set_num_threads(1)
    backend = backends.load(config, place, device.choose(config, place))
    rows = []
    for model in MODELS:
        for fault, spoil in FAULTS.items():
            for last_alone in (False, True) if fault != "none" else (False,):
                planted = FAULTS["none"] if last_alone and not place.rank else spoil
                own = of(model, max_lr=1e-3, **cell)
                parity, _ = train(own, backend, planted, place.rank, steps=(2,))
                rows.append([model, fault, last_alone, parity.holds, parity.record()[0]])
    if place.rank == 0:
        print(json.dumps(rows, default=str), flush=True)
    backend.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
