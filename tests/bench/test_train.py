"""Which losses count as those of a training, and what an observer of the loop is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.instrument import Observer
from bench.models import build_model
from bench.record import read_run
from bench.train.checks import check_samples, loss_bounded
from bench.train.input import Input
from bench.train.loop import Loop
from bench.train.timing import Stopwatch, time_steps
from tests.bench.ranks import bench

TINY = "tests.bench.tiny"


@pytest.mark.parametrize(
    "losses",
    [
        [2.3, 2.1, 1.9, 1.7],
        [2.3, 6.0, 25.0, 3.0, 8.0, 2.0],  # the first steps overshoot
        [2.6, 4.1, 7.2, 7.2, 34.8, 7.1],  # small batches, one of them far off
        [0.01, 2.3, 2.3, 2.3],  # it began by luck below a guess
        [60.0, 500.0, 450.0, 590.0],  # it began far off
    ],
)
def test_a_noisy_training_is_bounded(losses: list[float]) -> None:
    assert loss_bounded(losses, 3, 10)


@pytest.mark.parametrize("last", [24.0, 3.1e4, 6.3e10, math.inf, math.nan])
def test_an_exploded_one_is_not(last: float) -> None:
    assert not loss_bounded([2.3, 2.3, last, last], 2, 10)


def test_the_last_window_decides() -> None:
    assert loss_bounded([2.3, 1e6, 2.3, 2.3], 2, 10), "what happened before has passed"
    assert not loss_bounded([2.3, 2.3, 2.3, 100.0], 2, 10)
    assert loss_bounded([2.3, 2.3, 2.3, 100.0], 2, 1000**2), "a guess among many classes loses more"


@pytest.mark.parametrize(
    ("batch_sizes", "complete"),
    [([4] * 4, True), ([4, 4, 4, 3], False), ([4] * 3, False), ([8, 4, 4], False)],
)
def test_a_run_whose_samples_are_not_complete_is_not_ok(
    batch_sizes: list[int], complete: bool
) -> None:
    steps: Any = {"warmup_steps": 3, "windows": 1, "steps_per_window": 1}
    config = RunConfig(batch_per_rank=4, **steps)
    batches = iter([(torch.ones(n, 3, 8, 8), torch.arange(n)) for n in batch_sizes])
    samples = Input(config, batches, torch.device("cpu"))
    for _ in batch_sizes:
        samples.step()
    facts = check_samples(samples, Backend(), config)
    assert facts == {"checks": {"samples_per_step": complete}, "samples": sum(batch_sizes)}


class Notes(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in vars(Observer):
            self.said.append(name)
        return super().__getattribute__(name)


def test_an_observer_is_told_of_every_part_of_a_step() -> None:
    config = RunConfig(batch_per_rank=4, accumulate=2, dataset="digits", model=f"{TINY}:plain")
    batch = (torch.ones(4, 3, 8, 8), torch.arange(4))
    notes, samples = Notes(), Input(config, iter([batch]), torch.device("cpu"))
    Loop(config, Backend(), build_model(config, 10), samples, notes).step()
    passes = ["forward_done", "backward_done"]
    assert notes.said == [
        "session_ready",
        "step_begin",
        "batch_ready",
        *passes,
        *passes,
        "gradients_ready",
        "step_end",
    ]


class Late(torch.nn.Linear):
    """Makes a layer in its first forward pass."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "late"):
            self.late = torch.nn.Linear(10, 10)
        result: torch.Tensor = self.late(super().forward(images.mean((2, 3))))
        return result


class Freezes(torch.nn.Linear):
    """Freezes itself in its second forward pass."""

    passes = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        self.requires_grad_(self.passes == 1)
        return super().forward(images.mean((2, 3)))


@pytest.mark.parametrize(("labels", "one"), [([3, 3, 3, 3], 3), ([3, 3, 3, 2], None)])
def test_a_batch_of_one_label_is_noticed(labels: list[int], one: int | None) -> None:
    config = RunConfig(batch_per_rank=4, dataset="digits", model=f"{TINY}:plain")
    batch = (torch.rand(4, 3, 8, 8), torch.tensor(labels))
    samples = Input(config, iter([batch]), torch.device("cpu"))
    loop = Loop(config, Backend(), build_model(config, 10), samples, classes=10)
    loop.step()
    assert loop.one_label == one


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Late(3, 10), r"made late\.weight in its first forward pass.*make it in the factory"),
        (Freezes(3, 10), "has nothing left to train in step 2; leave a parameter unfrozen"),
    ],
)
def test_what_changes_in_a_pass_is_told(network: torch.nn.Module, words: str) -> None:
    config = RunConfig(batch_per_rank=4, dataset="digits")
    batch = (torch.rand(4, 3, 8, 8), torch.arange(4))
    samples = Input(config, iter([batch] * 3), torch.device("cpu"))
    loop = Loop(config, Backend(), network, samples, classes=10)
    with pytest.raises(UsageError, match=words):
        time_steps(loop.step, 2, Stopwatch())


@pytest.mark.ranks
@pytest.mark.parametrize("cell", ["ddp/gloo", "horovod/gloo"])
def test_a_parameter_that_falls_out_of_use_fails_every_backend_alike(
    cell: str, tmp_path: Path
) -> None:
    """DDP would fail one step later, and Horovod go on with zeros."""
    backend, transport = cell.split("/")
    words = ["--backend", backend, "--transport", transport, "--world-size", "2", "--windows", "2"]
    words += ["--model", f"{TINY}:falls_out", "--dataset", "digits", "--image-size", "8"]
    done = bench(2, *words, "--batch-per-rank", "4", "--log-path", str(tmp_path / "run.jsonl"))
    left = "2 parameter(s) without gradient in step 7, such as fades.weight: freeze "
    assert f"error: model={TINY}:falls_out left {left}" in done.stderr
    assert done.returncode == 2
    assert read_run(tmp_path / "run.jsonl").state == "failed"
