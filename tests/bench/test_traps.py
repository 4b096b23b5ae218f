"""Horovod's traps that small models hide, on two real ranks; the contract finds the others."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.bench.tiny import normalised
from tests.bench.worker import Rank, attempt, on_ranks

pytestmark = pytest.mark.ranks


class Wide(nn.Sequential):
    """54 MiB of gradients, enough for the exchange to be under way when backward returns."""

    def __init__(self, classes: int) -> None:
        first, second, last = nn.Linear(192, 3700), nn.Linear(3700, 3700), nn.Linear(3700, classes)
        super().__init__(nn.Flatten(), first, nn.ReLU(), second, last)


def wrapped(rank: Rank, make: Any) -> tuple[nn.Module, Any]:
    """Wrap a new model in our backend."""
    torch.manual_seed(0)
    model: nn.Module = make(10)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, rank.backend.wrap(model, sgd, rank.config)


def loss(rank: Rank, model: nn.Module) -> torch.Tensor:
    """Compute the loss of a batch of this rank's own."""
    draw = torch.Generator().manual_seed(rank.number)
    return cross_entropy(model(torch.randn(4, 3, 8, 8, generator=draw)), torch.arange(4))


def clipping(rank: Rank) -> None:
    """Clip: ranks part where that is done in a race with the exchange."""
    model, session = wrapped(rank, Wide)
    session.backward(loss(rank, model))
    session.synchronize_gradients()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    session.step()
    assert rank.equal(model)


def step_hooks(rank: Rank) -> None:
    """Step: Horovod's own would run every hook on it twice."""
    calls: list[str] = []
    model, session = wrapped(rank, normalised)
    session.optimizer.register_step_post_hook(lambda *_: calls.append("called"))
    session.backward(loss(rank, model))
    session.synchronize_gradients()
    session.step()
    assert calls == ["called"]


TRAPS = {"clipping": clipping, "step_hooks": step_hooks}


def traps(rank: Rank) -> dict[str, str]:
    """Try every trap; return the traceback of what is not as it is said, or ''."""
    return {name: attempt(functools.partial(trap, rank)) for name, trap in TRAPS.items()}


def test_a_trap_is_cured() -> None:
    by_rank = on_ranks(2, traps, "--backend", "horovod")[0]
    assert by_rank == [dict.fromkeys(TRAPS, "")] * 2
