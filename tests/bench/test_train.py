"""What a model may not do in its passes, and what is noticed of the first batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.record import read_run
from bench.train.device import Stopwatch, time_steps
from bench.train.loop import Input, Loop
from tests.bench.ranks import bench
from tests.bench.tiny import plain


def loop_of(network: torch.nn.Module, *batches: Any) -> Loop:
    """Make a loop on these batches."""
    config = RunConfig(batch_per_rank=4, dataset="digits")
    samples = Input(config, iter(batches), torch.device("cpu"))
    return Loop(config, Backend(), network, samples, classes=10)


BATCH = (torch.rand(4, 3, 8, 8), torch.arange(4))


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
    loop = loop_of(plain(10), (torch.rand(4, 3, 8, 8), torch.tensor(labels)))
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
    loop = loop_of(network, *[BATCH] * 3)
    with pytest.raises(UsageError, match=words):
        time_steps(loop.step, 2, Stopwatch())


@pytest.mark.ranks
def test_a_parameter_that_falls_out_of_use_fails_every_backend_alike(tmp_path: Path) -> None:
    """DDP would fail one step later, and Horovod go on with zeros."""
    words = ["--backend", "horovod", "--transport", "gloo", "--world-size", "2", "--windows", "2"]
    words += ["--model", "tests.bench.tiny:falls_out", "--dataset", "digits", "--image-size", "8"]
    done = bench(2, *words, "--batch-per-rank", "4", "--log-path", str(tmp_path / "run.jsonl"))
    left = "2 parameter(s) without gradient in step 7, such as fades.weight: freeze "
    assert f"error: model=tests.bench.tiny:falls_out left {left}" in done.stderr
    assert done.returncode == 2
    assert read_run(tmp_path / "run.jsonl").state == "failed"
