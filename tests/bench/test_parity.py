"""Parity on known answers: what it finds, what it tolerates, and that it leaves no trace."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import nn

from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.instrument import parity as module
from bench.instrument.parity import SAMPLED, judge, mean, not_proven, own_gradients, relative
from bench.train.checks import digest
from tests.bench import parity_worker
from tests.bench.parity_worker import FAULTS, of, with_state
from tests.bench.ranks import together


def train(model: str, fault: Any = FAULTS["none"], **options: Any) -> tuple[Any, str]:
    """Train in micro-batches on one rank; return the check and the digest of the parameters."""
    parity, network = parity_worker.train(of(model, accumulate=2), Backend(), fault, **options)
    return parity, digest(network)


@pytest.mark.parametrize("model", ["with_state", "forgetful", "recomputed"])
def test_it_leaves_no_trace(model: str) -> None:
    """Neither random numbers nor what a pass writes or reassigns move: training goes on alike."""
    parity, digested = train(model, steps=(1, 2))
    assert parity.holds is True
    assert [(s.step, s.relative_difference, s.tensor) for s in parity.results] == [
        (1, 0.0, ""),
        (2, 0.0, ""),
    ]
    assert digested == train(model)[1]
    whole = sum(p.numel() for p in with_state(10).parameters())
    assert parity.results[0].elements == whole - (3 * 8 * 8 * 8 - SAMPLED)
    assert not train(model, steps=(2, 7))[0].holds, "a step that was not checked"


@pytest.mark.parametrize("fault", ["scale", "drop", "swap", "delay"])
@pytest.mark.parametrize("model", ["with_state", "forgetful", "recomputed"])
def test_a_wrong_exchange_is_found_whatever_the_model_draws(model: str, fault: str) -> None:
    parity, _ = train(model, FAULTS[fault], steps=(2,))
    assert parity.holds is False
    assert parity.results[0].not_proven == []


def test_one_wrong_element_is_found_and_named() -> None:
    def spoil(parameters: dict[str, nn.Parameter]) -> None:
        gradient = parameters["4.weight"].grad
        assert gradient is not None
        gradient.view(-1)[-1] += 1e-4

    parity, _ = train("with_state", spoil, steps=(2,))
    (step,) = parity.results
    assert parity.holds is False
    assert (step.tensor, step.differing, step.allowed) == ("4.weight", ["4.weight"], 0.0)
    assert step.not_deterministic == step.not_proven == []
    assert 0 < step.relative_difference < 0.1


def test_what_a_rank_cannot_repeat_or_writes_or_is_all_zero_is_never_called_proven() -> None:
    parity, _ = train("moody", steps=(2,))
    (step,) = parity.results
    assert parity.holds is step.record()["holds"] is None
    assert "1.weight" in step.not_deterministic
    assert "1.weight" in step.not_proven
    parity, digested = train("odd", steps=(2,))
    assert parity.holds is None
    assert parity.results[0].not_proven == ["0.written"]
    assert digested == train("odd")[1]
    assert "not proven of 0.written:" in not_proven(parity.record())
    assert train("nothing", steps=(2,))[0].holds is None


TWO = RunConfig(backend="ddp", batch_per_rank=4, world_size=2)


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
    step = judge(TWO, ["a", "b"], [0.0, difference], [0.0, noise])
    assert (step.holds, step.tensor, step.allowed) == (holds, "b", allowed)


def test_noise_of_one_tensor_excuses_no_other() -> None:
    step = judge(TWO, ["noisy", "wrong"], [0.1, 1e-6], [0.5, 0.0])
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
    found = [relative([x], [y])[0] for x, y in pairs]
    assert found == [0.125, 0, 0, 0, math.inf, 0, 0, math.inf, math.inf]
    assert relative([b], [a], floor=8.0) == [0.0625]


@pytest.mark.parametrize(
    ("fields", "at_two", "at_three"),
    [
        ({}, 0.0, 1e-5),
        ({"precision": "float64"}, 0.0, 1e-12),
        ({"precision": "bf16"}, 0.0, 2**-7),
    ],
)
def test_two_ranks_agree_bit_for_bit(
    fields: dict[str, Any], at_two: float, at_three: float
) -> None:
    for ranks, allowed in ((2, at_two), (3, at_three)):
        assert module.tolerance(TWO.model_copy(update={"world_size": ranks, **fields})) == allowed


def test_micro_batches_add_up_as_in_a_step() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    images, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    whole, parts = (
        own_gradients(network, of("with_state", accumulate=n), images, labels) for n in (1, 2)
    )
    assert max(relative(parts, whole)) < 1e-6
    assert network[1].weight.grad is None


def test_a_layer_used_twice_keeps_its_parameters() -> None:
    twice = nn.Linear(12, 12)
    network, before = nn.Sequential(nn.Flatten(), twice, twice), [*twice.parameters()]
    images, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    found = own_gradients(network, of("with_state"), images, labels)
    assert all(p is old for p, old in zip(twice.parameters(), before, strict=True))
    loss = nn.functional.cross_entropy(network(images), labels)
    assert max(relative(found, list(torch.autograd.grad(loss, before)))) == 0


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(("backend", "transport"), [("ddp", "gloo"), ("horovod", "mpi")])
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
        if model == "with_state" and fault == "none":
            assert (step["relative_difference"] > 0) == (ranks > 2), "by the order of summation"
