"""Parity on known answers: what it finds, what it tolerates, and that it leaves no trace."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.instrument.parity import SAMPLED, Parity, judge, mean, relative
from bench.train.checks import digest
from bench.train.loop import Input, Loop
from tests.bench.worker import Rank, on_ranks


class Forgetful(nn.Module):
    """Draws from all random numbers, writes a parameter, and gives all that it holds new values."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.history = [1.0]
        self.cache: dict[str, torch.Tensor] = {}
        self.drawn, self.expanded = np.random.default_rng(3), torch.ones(1).expand(4)
        self.empty, self.scale = nn.Parameter(torch.zeros(0)), nn.Parameter(torch.ones(1))
        self.held, self.written = [scale := self.scale], nn.Parameter(torch.ones(1))
        self.closure: Any = lambda x: x * scale
        scale.register_hook(lambda gradient: 2 * gradient)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.written.mul_(0.9)
        self.total += 1
        self.history.append(float(self.total))
        self.cache["last"] = x * self.total + self.scale
        drawn = random.random() + float(np.random.random()) + self.drawn.random()
        x = self.closure(x * self.expanded[0] * self.written * self.held[0]) + self.empty.sum()
        return x * (1 + drawn + sum(self.history)) + self.cache["last"]


class Recomputed(nn.Sequential):
    """A stack that is computed again in backward, as older checkpoints do it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x.requires_grad_(), use_reentrant=True)  # type: ignore[no-any-return]


class Shift(nn.Module):
    """Adds numbers whose gradient is a billionth of that of other layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1e-9 * self.shift


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


def with_state(*ends: nn.Module) -> nn.Sequential:
    """Build a model whose forward passes draw random numbers and change buffers."""
    parts = [nn.Flatten(), nn.Linear(3 * 8 * 8, 8), nn.BatchNorm1d(8), nn.Dropout()]
    return nn.Sequential(*parts, nn.Linear(8, 10), *ends, Shift(10))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "with_state": with_state,
    "forgetful": lambda: nn.Sequential(Forgetful(), *with_state()),
    "recomputed": lambda: Recomputed(*with_state()),
    "unsteady": lambda: nn.Sequential(Times(rounds), *with_state()),
    "moody": lambda: with_state(Times(lambda x: random.SystemRandom().random())),
    "nothing": lambda: nn.Sequential(*with_state(), Times(lambda x: 0)),
}


def swap(parameters: Any) -> None:
    """Exchange the gradients of two tensors of one shape: BatchNorm's."""
    *_, first, second = (p for p in parameters if p.shape == (8,))
    first.grad, second.grad = second.grad, first.grad


def delay(parameters: Any) -> None:
    """Give each step the gradients of the step before."""
    for p in parameters:
        late, p.late = getattr(p, "late", p.grad), p.grad.clone()
        p.grad = late.clone()


FAULTS: dict[str, Callable[[Any], object]] = {
    "none": lambda parameters: None,
    "scale": lambda parameters: [p.grad.mul_(10) for p in parameters],
    "scale the smallest": lambda parameters: parameters[-1].grad.mul_(10),
    "drop": lambda parameters: setattr(parameters[-1], "grad", None),
    "spoil one element": lambda parameters: parameters[-3].grad.view(-1)[-1:].add_(1e-2),
    "swap": swap,
    "delay": delay,
}


def train(
    config: RunConfig, backend: Any, model: str, fault: str = "none", rank: int = 0, **options: Any
) -> tuple[Parity, nn.Module]:
    """Train four steps, checked if there are options; return the check and the model."""
    torch.manual_seed(0)
    network = MODELS[model]()
    draw = torch.Generator().manual_seed(rank)
    batches = iter([(torch.randn(4, 3, 8, 8, generator=draw), torch.arange(4)) for _ in range(4)])
    parity = Parity(config, backend, network, **options)
    samples = Input(config, batches, torch.device("cpu"))
    loop = Loop(config, backend, network, samples, observer=parity if options else None)
    exchange = loop.session.synchronize_gradients

    def wrong() -> None:
        exchange()
        FAULTS[fault]([*network.parameters()])

    loop.session.synchronize_gradients = wrong  # type: ignore[method-assign]
    for _ in range(4):
        loop.step()
    return parity, network


CONFIG = RunConfig(batch_per_rank=4, accumulate=2)
alone = functools.partial(train, CONFIG, Backend())


@pytest.mark.parametrize("model", ["with_state", "forgetful", "recomputed"])
def test_it_leaves_no_trace_whatever_the_model_draws(model: str) -> None:
    parity, network = alone(model, steps=(1, 2))
    assert [(s.holds, s.step, s.relative_difference, s.tensor) for s in parity.results] == [
        (True, 1, 0.0, ""),
        (True, 2, 0.0, ""),
    ]
    assert digest(network) == digest(alone(model)[1]), "training goes on alike"
    numbers = [p.numel() for p in network.parameters()]
    assert parity.results[0].elements == sum(numbers) - (3 * 8 * 8 * 8 - SAMPLED)
    assert not alone(model, steps=(2, 7))[0].holds, "a step that was not checked"


def test_a_wrong_tensor_is_named() -> None:
    (step,) = alone("with_state", "spoil one element", steps=(2,))[0].results
    assert (step.tensor, step.differing, step.allowed) == ("4.weight", ["4.weight"], 0.0)
    assert step.not_deterministic == step.not_proven == []
    (step,) = alone("with_state", "scale", steps=(2,))[0].results
    assert step.relative_difference == pytest.approx(9.0)


@pytest.mark.parametrize("model", ["moody", "nothing"])
def test_what_a_rank_cannot_repeat_or_is_all_zero_is_never_called_proven(model: str) -> None:
    (step,) = alone(model, steps=(2,))[0].record()
    assert step["holds"] is None
    assert "1.weight" in step["not_proven"]


@pytest.mark.parametrize(
    ("ranks", "precision", "difference", "noise", "holds", "allowed"),
    [
        (2, "float32", 1e-8, 0.0, False, 0.0),  # a sum of two and halving are exact
        (3, "float32", 1e-6, 0.0, True, 1e-5),
        (3, "float64", 1e-11, 0.0, False, 1e-12),
        (3, "bf16", 2**-8, 0.0, True, 2**-7),
        (2, "float32", 4.9e-4, 1e-7, False, 1e-5),  # as of gradients that travel in half precision
        (2, "float32", 5e-4, 1e-5, True, 1e-3),
        (2, "float32", 9.0, 9e-4, False, 1e-3),  # no more than rounding explains
        (2, "float32", 1e-8, 2e-3, None, 1e-3),
        (2, "float32", math.inf, math.inf, None, 1e-3),
    ],
)
def test_own_noise_is_bounded_by_what_rounding_explains(
    ranks: int, precision: str, difference: float, noise: float, holds: bool | None, allowed: float
) -> None:
    cell = {"backend": "ddp", "world_size": ranks, "precision": precision}
    step = judge(RunConfig(batch_per_rank=4, **cell), ["a", "b"], [0.0, difference], [0.0, noise])
    assert (step.holds, step.tensor, step.allowed) == (holds, "b", allowed)


def test_noise_of_one_tensor_excuses_no_other() -> None:
    step = judge(CONFIG, ["noisy", "wrong"], [0.1, 1e-6], [0.5, 0.0])
    assert (step.not_proven, step.differing, step.holds) == (["noisy"], ["wrong"], False)


def test_the_mean_counts_a_rank_without_a_gradient_and_rounds_bfloat16_once() -> None:
    one, three = torch.ones(2), torch.full((2,), 3.0)
    assert torch.equal(mean([[one], [None], [three], [None]])[0], one)  # type: ignore[arg-type]
    assert mean([[None], [None]]) == [None]
    halves = [[torch.tensor([x], dtype=torch.bfloat16)] for x in (256.0, 1.0, 1.0)]
    assert mean(halves)[0] == torch.tensor([86.0])  # type: ignore[arg-type]  # bfloat16: 256 + 1 = 256


def test_known_differences() -> None:
    a, b = torch.tensor([1.0, -4.0]), torch.tensor([1.5, -4.0])
    nan, inf = torch.tensor([math.nan, 1.0]), torch.tensor([math.inf, 1.0])
    pairs = [(b, a), (a, a), (nan, nan), (inf, inf), (nan, a), (None, None), (0 * a, None)]
    pairs += [(None, a), (a, 0 * a)]
    ratios = [relative([x], [y])[0] for x, y in pairs]
    assert ratios == [0.125, 0, 0, 0, math.inf, 0, 0, math.inf, math.inf]
    assert relative([b], [a], floor=8.0) == [0.0625]


def planted(rank: Rank) -> list[Any]:
    """Train models with every fault, on all ranks or on the last alone."""
    rows = []
    for model in ("with_state", "forgetful", "recomputed", "unsteady", "moody"):
        for fault in FAULTS:
            for last_alone in (False, True) if fault != "none" else (False,):
                this = "none" if last_alone and not rank.number else fault
                parity, _ = train(rank.config, rank.backend, model, this, rank.number, steps=(2,))
                rows.append([model, fault, last_alone, parity.results[0]])
    return rows


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("backend", "transport", "ranks"), [("ddp", "gloo", 2), ("horovod", "mpi", 3)]
)
def test_a_planted_fault_is_never_called_parity(backend: str, transport: str, ranks: int) -> None:
    """Each fault is on every rank, or on one alone."""
    words = ["--backend", backend, "--transport", transport, "--max-lr", "1e-3"]
    rows = on_ranks(ranks, planted, *words)[0][0]
    assert len(rows) == 5 * (1 + 6 * 2)
    for model, fault, last_alone, step in rows:
        if model == "moody":  # beyond any proof, though a fault may show
            assert step.holds is None or (fault != "none" and not step.holds), step
        elif (model, fault) != ("unsteady", "scale the smallest"):  # which is rounding alone there
            assert step.holds is (fault == "none"), (model, fault, last_alone, step)
        if (model, fault) == ("with_state", "none"):
            assert (step.relative_difference > 0) == (ranks > 2), "by the order of summation"
