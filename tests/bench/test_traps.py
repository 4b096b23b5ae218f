"""Horovod's traps on two real ranks: each is shown without its cure, and then with it.

Tensors are named after the trap, so that a half-finished exchange of one cannot meet that of
another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from bench.config import UsageError
from bench.train.checks import digest
from tests.bench.tiny import normalised
from tests.bench.worker import Rank, attempt, on_ranks

pytestmark = pytest.mark.ranks


class World:
    """Both ways to Horovod in one process group: `hvd` itself, and our backend with any config."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.hvd = rank, rank.backend._hvd

    def raw(self, model: nn.Module, trap: str) -> Any:
        """Wrap the model's optimiser in Horovod's, as Horovod's documentation shows."""
        names = [(f"{trap}.{name}", p) for name, p in model.named_parameters()]
        return self.hvd.DistributedOptimizer(sgd(model), named_parameters=names)

    def cured(self, model: nn.Module, **fields: Any) -> Any:
        """Wrap `model` with our backend, and return its session."""
        config = self.rank.config.model_copy(update=fields)
        return self.rank.backend.wrap(model, sgd(model), config)

    def loss(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Compute the loss of a batch of this rank's own."""
        draw = torch.Generator().manual_seed(self.rank.number)
        images = torch.randn(4, 3, 8, 8, generator=draw).to(dtype)
        return cross_entropy(model(images), torch.arange(4))

    def train(self, session: Any, dtype: torch.dtype = torch.float32) -> None:
        session.zero_grad()
        session.backward(self.loss(session.model, dtype))
        session.synchronize_gradients()
        session.step()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def fresh(make: Callable[[int], nn.Module] = normalised) -> nn.Module:
    torch.manual_seed(0)
    return make(10)


class Wide(nn.Sequential):
    """54 MiB of gradients, enough for the exchange to be under way when backward returns."""

    def __init__(self, classes: int) -> None:
        first, second, last = nn.Linear(192, 3700), nn.Linear(3700, 3700), nn.Linear(3700, classes)
        super().__init__(nn.Flatten(), first, nn.ReLU(), second, last)


class LeavesOut(nn.Module):
    """Has a layer that no step uses."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(192, classes), nn.Linear(5, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.used(images.flatten(1))
        return scores


def unsupported(world: World, trap: str, reason: str, dtype: torch.dtype, **layout: Any) -> None:
    """Show that Horovod takes no such tensors, and that ours travel and keep what they are."""
    model = fresh().to(dtype, **layout)
    broadcast = functools.partial(world.hvd.broadcast_parameters, root_rank=0)
    assert reason in attempt(lambda: broadcast(model.state_dict()))
    world.raw(model, trap)
    assert reason in attempt(lambda: world.loss(model, dtype).backward())
    other = fresh().to(dtype, **layout)
    precision = "bf16" if dtype == torch.bfloat16 else "float32"
    world.train(world.cured(other, precision=precision), dtype)
    gradients = [(p.grad, p) for p in other.parameters() if p.grad is not None]
    assert all(g.stride() == p.stride() and g.dtype == dtype for g, p in gradients)
    assert world.rank.equal(other)


def channels_last(world: World) -> None:
    layout = {"memory_format": torch.channels_last}
    unsupported(world, "channels_last", "required to be contiguous", torch.float32, **layout)


def bf16(world: World) -> None:
    unsupported(world, "bf16", "BFloat16Tensor is not supported", torch.bfloat16)


def set_to_none(world: World) -> None:
    optimizer = world.raw(fresh(), "set_to_none")
    reason = "unexpected keyword argument 'set_to_none'"
    assert reason in attempt(lambda: optimizer.zero_grad(set_to_none=True))
    world.train(session := world.cured(fresh()))
    session.zero_grad()
    assert all(p.grad is None for p in session.model.parameters())


def clipping(world: World) -> None:
    """Show that ranks part where gradients are clipped in a race with the exchange."""
    optimizer = world.raw(model := fresh(Wide), "clipping")
    world.loss(model).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    assert not world.rank.equal(model)
    session = world.cured(other := fresh(Wide))
    session.backward(world.loss(other))
    session.synchronize_gradients()
    nn.utils.clip_grad_norm_(other.parameters(), 0.01)
    session.step()
    assert world.rank.equal(other)


def lost_defaults(world: World) -> None:
    cases = {0.001: world.raw(fresh(), "defaults"), 0.1: world.cured(fresh()).optimizer}
    for rate, optimizer in cases.items():
        momentum = 0 if rate == 0.001 else 0.9
        assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (rate, momentum)


def unused_parameters(world: World) -> None:
    optimizer = world.raw(model := fresh(LeavesOut), "unused")
    world.loss(model).backward()
    optimizer.step()
    assert not torch.equal(model.idle.weight, fresh(LeavesOut).idle.weight), "weight decay moved it"
    world.train(session := world.cured(fresh(LeavesOut), unused_parameters=True))
    assert torch.equal(session.model.idle.weight, fresh(LeavesOut).idle.weight)


def refused_unused(world: World) -> None:
    """Show that without unused_parameters the loop refuses such a model itself, in every cell."""
    loop = world.rank.loop(world.rank.config, fresh(LeavesOut))
    with pytest.raises(UsageError, match=r"left 2 parameter.*such as idle\.weight.*--unused-param"):
        loop.step()
    loop.session.synchronize_gradients()  # drain, so that the next trap starts clean


def step_hooks(world: World) -> None:
    calls: list[str] = []
    raw, session = world.raw(model := fresh(), "hooks"), world.cured(fresh())
    for name, optimizer in (("raw", raw), ("cured", session.optimizer)):
        optimizer.register_step_post_hook(lambda *_, name=name: calls.append(name))
    world.loss(model).backward()
    raw.step()
    world.train(session)
    assert calls == ["raw", "raw", "cured"]


def optimizer_state(world: World) -> None:
    """Show that broadcasting the state of a fresh optimiser trains."""
    model, other = fresh(), fresh()
    before = digest(model)
    world.hvd.broadcast_optimizer_state(sgd(model), root_rank=0)
    world.cured(other)
    assert digest(model) != before
    assert digest(other) == before


def accumulation(world: World) -> None:
    world.raw(model := fresh(), "accumulation")
    world.loss(model).backward()
    reason = "more than backward_passes_per_step times"
    assert reason in attempt(lambda: world.loss(model).backward())
    session = world.cured(other := fresh(), accumulate=2)
    with session.no_sync():
        session.backward(world.loss(other) / 2)
    session.backward(world.loss(other) / 2)
    session.synchronize_gradients()
    session.step()
    assert world.rank.equal(other)


TRAPS: dict[str, Callable[[World], None]] = {
    trap.__name__: trap
    for trap in (
        *(channels_last, bf16, set_to_none, clipping, lost_defaults, unused_parameters),
        *(refused_unused, step_hooks, optimizer_state, accumulation),
    )
}


def traps(rank: Rank) -> dict[str, str]:
    """Try every trap; return the traceback of what is not as it is said, or ''."""
    world = World(rank)
    return {name: attempt(functools.partial(trap, world)) for name, trap in TRAPS.items()}


@functools.cache
def tried() -> list[dict[str, str]]:
    return on_ranks(2, traps, "--backend", "horovod")[0]


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_there_and_cured(trap: str) -> None:
    assert [on_rank[trap] for on_rank in tried()] == ["", ""]
