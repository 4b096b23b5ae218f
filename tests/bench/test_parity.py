"""Parity on known answers: what it finds, what it tolerates, and that it leaves no trace."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench.backends.protocol import Backend, Session
from bench.config import RunConfig
from bench.instrument.parity import (
    SAMPLED,
    Parity,
    judge,
    mean,
    not_proven,
    own_gradients,
    relative,
    rounding,
    tolerance,
)
from bench.models import build_model
from bench.train.checks import digest
from bench.train.input import Input
from bench.train.loop import Loop
from tests.bench.ranks import bench, together

CONFIG = RunConfig(batch_per_rank=4, model="tests.bench.test_parity:with_state", accumulate=2)


class Moody(nn.Module):
    """Draws from a generator that nobody can set."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * random.SystemRandom().random()


class Forgetful(nn.Module):
    """Draws from all random numbers, and gives buffers and attributes new values."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.passes, self.history = 0, [1.0]
        self.drawn = np.random.default_rng(3)
        self.cache: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        self.history.append(float(self.passes))
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        self.cache["last"] = self.mean + self.passes
        drawn = random.random() + float(np.random.random()) + self.drawn.random()
        return x * (1 + drawn + self.passes + sum(self.history)) + self.cache["last"]


class Odd(nn.Module):
    """Holds an expanded tensor, a parameter of no elements, and one that its pass writes."""

    def __init__(self) -> None:
        super().__init__()
        self.expanded = torch.ones(1).expand(4)
        self.empty = nn.Parameter(torch.zeros(0))
        self.written = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.written.clamp_(max=2.0)
        return x * self.expanded[0] * self.written + self.empty.sum()


class Recomputed(nn.Sequential):
    """A stack that is computed again in backward, as older checkpoints do it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x.requires_grad_(), use_reentrant=True)  # type: ignore[no-any-return]


def with_state(classes: int) -> nn.Module:
    """Build a model whose forward passes draw random numbers and change buffers."""
    parts = [nn.Flatten(), nn.Linear(3 * 8 * 8, 8), nn.BatchNorm1d(8), nn.Dropout()]
    return nn.Sequential(*parts, nn.Linear(8, classes))


def forgetful(classes: int) -> nn.Module:
    return nn.Sequential(Forgetful(), *with_state(classes).children())


def odd(classes: int) -> nn.Module:
    return nn.Sequential(Odd(), *with_state(classes).children())


def recomputed(classes: int) -> nn.Module:
    return nn.Sequential(Recomputed(*with_state(classes).children()))


class Unsteady(nn.Module):
    """Rounds otherwise each time, as kernels do that add in no fixed order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = torch.Generator().manual_seed(random.SystemRandom().getrandbits(62))
        return x * (1 + 1e-6 * torch.rand(x.shape, generator=own))


def unsteady(classes: int) -> nn.Module:
    return nn.Sequential(Unsteady(), *with_state(classes).children())


def moody(classes: int) -> nn.Module:
    return nn.Sequential(*with_state(classes).children(), Moody())


class Wrong(Backend):
    """Spoils gradients, [parameters] by name, when it is asked to exchange them."""

    def __init__(self, spoil: Callable[[dict[str, nn.Parameter]], None]) -> None:
        super().__init__()
        self._spoil = spoil

    def wrap(self, model: nn.Module, optimizer: Any, config: RunConfig) -> Session:
        spoil, parameters = self._spoil, dict(model.named_parameters())

        class Spoiling(Session):
            def synchronize_gradients(inner) -> None:
                spoil(parameters)

        return Spoiling(model, optimizer)

    reduce_scalar = staticmethod(lambda value, op: value)
    gather = staticmethod(lambda value: [value])
    barrier = staticmethod(lambda: None)
    close = staticmethod(lambda: None)


def scale(parameters: dict[str, nn.Parameter]) -> None:
    for p in parameters.values():
        assert p.grad is not None
        p.grad.mul_(10)


def drop(parameters: dict[str, nn.Parameter]) -> None:
    [*parameters.values()][-1].grad = None


def swap(parameters: dict[str, nn.Parameter]) -> None:
    """Exchange the gradients of two tensors of one shape: BatchNorm's."""
    *_, first, second = (p for p in parameters.values() if p.shape == (8,))
    first.grad, second.grad = second.grad, first.grad


def delay(parameters: dict[str, nn.Parameter]) -> None:
    """Give each step the gradients of the step before."""
    for p in parameters.values():
        assert p.grad is not None
        late, p.late = getattr(p, "late", p.grad), p.grad.clone()  # type: ignore[attr-defined]
        p.grad = late.clone()


def train(backend: Backend, config: RunConfig = CONFIG, **options: Any) -> tuple[Parity, str]:
    """Train four steps, checked if there are options; return the check and parameters' digest."""
    torch.manual_seed(0)
    network = build_model(config, 10)
    batches = ((torch.randn(4, 3, 8, 8), torch.arange(4)) for _ in itertools.count())
    parity = Parity(config, backend, network, **options)
    observer = parity if options else None
    loop = Loop(
        config, backend, network, Input(config, batches, torch.device("cpu")), observer=observer
    )
    for _ in range(4):
        loop.step()
    return parity, digest(network)


def of(model: str) -> RunConfig:
    return CONFIG.model_copy(update={"model": f"tests.bench.test_parity:{model}"})


@pytest.mark.parametrize("model", ["with_state", "forgetful", "recomputed"])
def test_it_leaves_no_trace(model: str) -> None:
    """Neither random numbers nor what a pass writes or reassigns move: training goes on alike."""
    parity, digested = train(Backend(), of(model), steps=(1, 2))
    assert parity.holds is True
    assert [(s.step, s.relative_difference, s.tensor) for s in parity.results] == [
        (1, 0.0, ""),
        (2, 0.0, ""),
    ]
    assert digested == train(Backend(), of(model))[1]
    whole = sum(p.numel() for p in with_state(10).parameters())
    assert parity.results[0].elements == whole - (3 * 8 * 8 * 8 - SAMPLED)


@pytest.mark.parametrize("spoil", [scale, drop, swap, delay])
@pytest.mark.parametrize("model", ["with_state", "forgetful", "recomputed"])
def test_a_wrong_exchange_is_found_whatever_the_model_draws(model: str, spoil: Any) -> None:
    parity, _ = train(Wrong(spoil), of(model), steps=(2,))
    assert parity.holds is False
    assert parity.results[0].not_proven == []


def test_one_wrong_element_is_found_and_named() -> None:
    def spoil(parameters: dict[str, nn.Parameter]) -> None:
        gradient = parameters["4.weight"].grad
        assert gradient is not None
        gradient.view(-1)[-1] += 1e-4

    parity, _ = train(Wrong(spoil), steps=(2,))
    (step,) = parity.results
    assert parity.holds is False
    assert (step.tensor, step.differing, step.allowed) == ("4.weight", ["4.weight"], 0.0)
    assert step.not_deterministic == step.not_proven == []
    assert 0 < step.relative_difference < 0.1


def test_what_a_rank_cannot_repeat_is_named_and_never_called_proven() -> None:
    parity, _ = train(Backend(), of("moody"), steps=(2,))
    assert parity.holds is None
    (step,) = parity.results
    assert "1.weight" in step.not_deterministic
    assert "1.weight" in step.not_proven
    assert step.record()["holds"] is None


@pytest.mark.parametrize(
    ("difference", "noise", "holds", "allowed"),
    [
        (1e-8, 1e-9, True, 1e-5),  # two ranks, one of which rounds otherwise
        (5e-4, 1e-5, True, 1e-3),
        (2e-3, 1e-5, False, 1e-3),  # 100 times the noise, and no more than rounding explains
        (9.0, 9e-4, False, 1e-3),
        (1e-8, 2e-3, None, 1e-3),
        (math.inf, math.inf, None, 1e-3),
        (1e-8, 0.0, False, 0.0),
    ],
)
def test_own_noise_is_bounded_by_what_rounding_explains(
    difference: float, noise: float, holds: bool | None, allowed: float
) -> None:
    config = RunConfig(backend="ddp", batch_per_rank=4, world_size=2)
    judged = judge(config, ["a", "b"], [0.0, difference], [0.0, noise])
    step = judged
    assert (step.holds, step.tensor, step.allowed) == (holds, "b", allowed)


def test_noise_of_one_tensor_excuses_no_other() -> None:
    config = RunConfig(backend="ddp", batch_per_rank=4, world_size=2)
    judged = judge(config, ["noisy", "wrong"], [0.1, 1e-6], [0.5, 0.0])
    assert (judged.not_proven, judged.differing) == (["noisy"], ["wrong"])
    assert judged.holds is False


def test_odd_tensors_are_trained_and_only_what_a_pass_writes_is_not_proven() -> None:
    parity, digested = train(Backend(), of("odd"), steps=(2,))
    assert parity.holds is None
    assert parity.results[0].not_proven == ["0.written"]
    assert digested == train(Backend(), of("odd"))[1]
    assert "not proven of 0.written:" in not_proven(parity.record())


def test_a_parameter_that_the_pass_writes_is_not_proven() -> None:
    config = RunConfig(backend="ddp", batch_per_rank=4, world_size=2)
    judged = judge(config, ["a"], [0.0], [0.0], written=["a"])
    assert judged.not_proven == ["a"]


class Nothing(nn.Module):
    """Multiplies by zero, so every gradient is zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0


def nothing(classes: int) -> nn.Module:
    return nn.Sequential(*with_state(classes).children(), Nothing())


def test_gradients_that_are_all_zero_prove_nothing() -> None:
    assert train(Backend(), of("nothing"), steps=(2,))[0].holds is None


def test_a_step_that_was_not_checked_does_not_hold() -> None:
    assert not train(Backend(), steps=(2, 7))[0].holds


def test_the_mean_counts_a_rank_without_a_gradient_and_rounds_bfloat16_once() -> None:
    one, three = torch.ones(2), torch.full((2,), 3.0)
    assert torch.equal(mean([[one], [None], [three], [None]])[0], one)  # type: ignore[arg-type]
    assert mean([[None], [None]]) == [None]
    halves = [torch.tensor([x], dtype=torch.bfloat16) for x in (256.0, 1.0, 1.0)]
    assert mean([[h] for h in halves])[0] == torch.tensor(
        [86.0]
    )  # 258 / 3; bfloat16: 256 + 1 = 256


def test_known_differences() -> None:
    a, b = torch.tensor([1.0, -4.0]), torch.tensor([1.5, -4.0])
    nan, inf = torch.tensor([math.nan, 1.0]), torch.tensor([math.inf, 1.0])
    pairs = [(b, a), (a, a), (nan, nan), (inf, inf), (nan, a), (None, None), (0 * a, None)]
    pairs += [(None, a), (a, 0 * a)]
    found = [relative([x], [y])[0] for x, y in pairs]
    assert found == [0.125, 0, 0, 0, math.inf, 0, 0, math.inf, math.inf]
    assert relative([b], [a], floor=8.0) == [0.0625]


@pytest.mark.parametrize(
    ("fields", "at_two", "at_three"),
    [
        ({}, 0.0, 1e-5),
        ({"precision": "float64"}, 0.0, 1e-12),
        ({"precision": "bf16"}, 0.0, 2**-7),
        ({"compression": "fp16"}, 2**-10, 1.5 * 2**-10),
    ],
)
def test_two_ranks_agree_bit_for_bit(
    fields: dict[str, Any], at_two: float, at_three: float
) -> None:
    base: dict[str, Any] = {"backend": "ddp", "batch_per_rank": 4, **fields}
    assert tolerance(RunConfig(world_size=2, **base)) == at_two
    assert tolerance(RunConfig(world_size=3, **base)) == at_three
    assert rounding(RunConfig(world_size=2, **base)) == (at_two or at_three)


def test_micro_batches_add_up_as_in_a_step() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    images, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    whole = own_gradients(network, CONFIG.model_copy(update={"accumulate": 1}), images, labels)
    assert max(relative(own_gradients(network, CONFIG, images, labels), whole)) < 1e-6
    assert network[1].weight.grad is None


@pytest.mark.ranks
def test_the_doctor_compares_real_ranks(tmp_path: Path) -> None:
    log = tmp_path / "parity.jsonl"
    model = ["--model", "tests.bench.tiny:normalised", "--dataset", "digits"]
    cell = ["--backend", "horovod", "--transport", "gloo", "--world-size", "3"]
    done = bench(3, "doctor", *model, *cell, "--log-path", str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok       horovod/gloo parity holds: max|difference|" in done.stdout
    start, facts, end = map(json.loads, log.read_text().splitlines())
    assert (facts["event"], facts["cell"], facts["holds"]) == ("parity", "horovod/gloo", True)
    steps = facts["steps"]
    assert [step["step"] for step in steps] == [0, 1, 2, 3, 4]
    assert all(0 < step["relative_difference"] <= step["allowed"] == 1e-5 for step in steps)
    assert all(step["not_deterministic"] == [] for step in steps)
    assert start["host"]["versions"]["horovod"]
    assert end["status"] == "ok"


CELLS = [("ddp", "gloo"), ("horovod", "mpi")]


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(("backend", "transport"), CELLS)
def test_a_planted_fault_is_never_called_parity(backend: str, transport: str, ranks: int) -> None:
    """Gradients that are scaled, dropped, swapped or late, on every rank or on one alone."""
    done = together(ranks, "tests.bench.parity_worker", backend, transport)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) == 5 * (1 + 4 * 2)
    for model, fault, last_alone, holds, step in rows:
        if model == "moody":  # beyond any proof, though a fault may show
            assert holds is None or (fault != "none" and not holds), (fault, last_alone, step)
        else:
            assert holds is (fault == "none"), (model, fault, last_alone, step)
