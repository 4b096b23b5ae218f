"""Gradients in other strides than their parameters': torch warns where the log says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bench.instrument.layout import strided_gradients
from bench.record import read_run
from bench.study.strides import WARNING, strides
from bench.train.timing import Stopwatch
from plots.__main__ import main
from tests.bench import tiny
from tests.bench.ranks import bench
from tests.plots import logs

FLOAT_BYTES = 4


def stepped(model: nn.Module, images: torch.Tensor | None = None) -> nn.Module:
    """The model after one backward pass."""
    images = torch.ones(4, 3, 8, 8) if images is None else images
    model(images).sum().backward()
    return model


def test_a_gradient_of_other_strides_is_counted_and_its_copies_are_timed() -> None:
    model = stepped(tiny.strided(10))
    before = [p.grad for p in model.parameters()]
    facts = strided_gradients(model, Stopwatch())
    assert (facts["count"], facts["of"]) == (1, len(before))
    assert facts["bytes"] == FLOAT_BYTES * 8 * 8
    for name in ("copy_seconds", "ordered_copy_seconds"):
        assert len(facts[name]) == 10
        assert min(facts[name]) > 0
    assert all(p.grad is g for p, g in zip(model.parameters(), before, strict=True))


def test_what_autograd_puts_in_order_is_not_counted() -> None:
    """Gradients of channels_last images, in channels_last order: autograd copies them itself."""
    model = stepped(
        tiny.normalised(10), torch.ones(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    )
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size[0] > 1]
    assert len(convolutions) == 2
    assert all(c.weight.grad is not None for c in convolutions)
    assert all(
        c.weight.grad.stride() == c.weight.stride()
        for c in convolutions
        if c.weight.grad is not None
    )
    assert strided_gradients(model, Stopwatch())["count"] <= 1


def test_parameters_without_a_gradient_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].requires_grad_(False)
    model(torch.ones(1, 3)).sum().backward()
    assert strided_gradients(model, Stopwatch()) == {"count": 0, "of": 2, "bytes": 0}


def test_the_cost_is_the_difference_of_the_medians() -> None:
    logged: dict[str, Any] = {"count": 3, "of": 8, "bytes": 2**20}
    logged |= {"copy_seconds": [0.004, 0.9, 0.003], "ordered_copy_seconds": [0.001, 0.001, 0.7]}
    found = strides({"strided_gradients": logged})
    assert found is not None
    assert (found.count, found.of, found.size_bytes) == (3, 8, 2**20)
    assert found.added_s == pytest.approx(0.003)
    assert "3 of 8 gradients (1 MiB)" in found.words(0.1)
    assert found.words(0.1).endswith("copying them by +3 ms (+3.00% of a step)")
    assert strides({}) is None
    assert strides({"strided_gradients": {"count": 3, "of": 8, "bytes": 9}}) is None


@pytest.mark.ranks
@pytest.mark.parametrize(("model", "warns"), [("strided", True), ("normalised", False)])
def test_ddp_warns_of_what_the_log_has(model: str, warns: bool, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    words = ["--backend", "ddp", "--world-size", "2", "--model", f"tests.bench.tiny:{model}"]
    words += ["--dataset", "digits", "--image-size", "8", "--batch-per-rank", "4", "--windows", "2"]
    done = bench(2, *words, "--log-path", str(log))
    assert done.returncode == 0, done.stderr
    run = read_run(log)
    assert run.problem is None
    logged = strides(run.end)
    assert logged is not None
    assert (logged.count > 0) == warns
    assert (WARNING in done.stderr) == warns


def test_the_report_says_what_it_costs(tmp_path: Path) -> None:
    logged: dict[str, Any] = {"count": 3, "of": 8, "bytes": 2**20}
    logged |= {"copy_seconds": [0.004] * 10, "ordered_copy_seconds": [0.001] * 10}
    ends: dict[str, Any] = {
        "ddp/mpi": {"strided_gradients": logged},
        "horovod/mpi": {},
    }
    for cell, end in ends.items():
        log = tmp_path / f"{cell.replace('/', '-')}.jsonl"
        logs.write(log, logs.config(cell, 2), 0.1, end=end)
    assert main(["report", str(tmp_path), "--out", str(tmp_path)]) == 0
    words = f'- 3 of 8 gradients (1 MiB) lie in other strides than their parameters ("{WARNING}"), '
    words += "which changes the time of copying them by +3 ms (+3.00% of a step) (ddp-mpi.jsonl, "
    words += "which it costs most; 1 of 2 runs have such gradients)."
    assert words in (tmp_path / "report.md").read_text()
