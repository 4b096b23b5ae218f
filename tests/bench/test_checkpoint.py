"""A training that was ended goes on where it was, and ends as if it had never stopped."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.record import Run, read_run
from tests.bench import ranks
from tests.bench.ranks import bench, thorough

# momentum, a rate that falls with the steps, BatchNorm's buffers and random numbers to go on with
OPTIONS: tuple[str, ...] = (
    *("--model", "tests.bench.tiny:dropping", "--dataset", "digits", "--image-size", "8"),
    *("--global-batch", "64", "--base-lr", "0.4", "--lr-decay", "linear", "--epochs", "12"),
    *("--warmup-steps", "3", "--windows", "1", "--steps-per-window", "2", "--trainings", "2"),
)


def cell(backend: str, world_size: int) -> tuple[str, ...]:
    return ("--backend", backend, "--world-size", str(world_size))


def learnt(run: Run) -> list[tuple[int, int, int, float]]:
    return [
        (e["training"], e["index"], e["correct"], e["loss"])
        for e in run.events
        if e["event"] == "epoch"
    ]


@functools.cache
def whole(backend: str, world_size: int) -> list[tuple[int, int, int, float]]:
    """Of a run that nobody ended."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "whole.jsonl"
        of_cell = cell(backend, world_size)
        done = bench(world_size, *OPTIONS, *of_cell, "--log-path", str(log))
        assert done.returncode == 0, done.stderr
        assert read_run(log).problem is None
        return learnt(read_run(log))


def end_after(epochs: int, log: Path, backend: str, world_size: int) -> Path:
    """A run that is told to stop once so many epochs are logged; its checkpoint."""
    words = ["-m", "bench", *OPTIONS, *cell(backend, world_size), "--checkpoint"]
    words += ["--log-path", str(log)]
    command = [sys.executable, *words] if world_size == 1 else ranks.mpirun(2, *words)
    process = subprocess.Popen(
        command,
        cwd=ranks.ROOT,
        env=ranks.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 180
    while not (log.exists() and log.read_text().count('"event": "epoch"') >= epochs):
        assert process.poll() is None, "ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    return log.with_suffix(".checkpoint")


def go_on(log: Path, backend: str, world_size: int) -> subprocess.CompletedProcess[str]:
    of_cell = cell(backend, world_size)
    return bench(world_size, *OPTIONS, *of_cell, "--checkpoint", "--log-path", str(log))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a run of one process that was ended in its second training."""
    log = tmp_path_factory.mktemp("ended") / "run.jsonl"
    assert end_after(14, log, "single", 1).exists()
    return log


def test_one_that_goes_on_equals_one_that_never_stopped(ended: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    kept = log.with_suffix(".checkpoint")
    kept.write_bytes(ended.with_suffix(".checkpoint").read_bytes())
    assert read_run(ended).state == "interrupted"
    done = go_on(log, "single", 1)
    assert done.returncode == 0, done.stderr
    run, before = read_run(log), learnt(read_run(ended))
    assert run.problem is None
    assert 14 <= len(before) < 24
    assert f"training 2, epoch {len(before) - 12}:" not in done.stderr  # not trained again
    assert learnt(run) == whole("single", 1)
    timed = [e["seconds"] for e in run.events if e["event"] == "epoch"]
    earlier = [e["seconds"] for e in read_run(ended).events if e["event"] == "epoch"]
    assert timed[: len(earlier)] == earlier
    marked = [e.get("earlier", False) for e in run.events if e["event"] == "epoch"]
    assert marked == [True] * len(earlier) + [False] * (24 - len(earlier))
    assert not kept.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        thorough(("--base-lr", "0.8"), "is of a run with base_lr=0.4, not 0.8"),
        (("--seed", "1"), "is of a run with seed=0, not 1"),
    ],
)
def test_another_runs_checkpoint_is_refused(
    ended: Path, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    log = tmp_path / "run.jsonl"
    kept = log.with_suffix(".checkpoint")
    kept.write_bytes(ended.with_suffix(".checkpoint").read_bytes())
    done = bench(1, *OPTIONS, *change, "--checkpoint", "--log-path", str(log))
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert kept.exists()


def test_without_a_log_there_is_no_place_for_one() -> None:
    done = bench(1, *OPTIONS, "--checkpoint")
    assert done.returncode == 2
    assert "checkpoint=True is kept beside the log, and there is none" in done.stderr


def test_a_torn_checkpoint_is_refused(ended: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    whole_file = ended.with_suffix(".checkpoint").read_bytes()
    log.with_suffix(".checkpoint").write_bytes(whole_file[: len(whole_file) // 2])
    done = go_on(log, "single", 1)
    assert done.returncode == 2
    assert "is no checkpoint" in done.stderr.splitlines()[-1]


def _state(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(path, weights_only=True)
    return found


@pytest.mark.ranks
@pytest.mark.thorough
def test_every_backend_goes_on_and_writes_the_same_state(tmp_path: Path) -> None:
    """At two ranks a mean has one order, so the trainings of all backends are equal to the bit."""
    states = {}
    for backend in ("ddp", "horovod", "handwritten"):
        log = tmp_path / f"{backend}.jsonl"
        kept = end_after(3, log, backend, 2)
        states[backend] = _state(kept)
        log.rename(log.with_suffix(".attempt-1.jsonl"))
        done = go_on(log, backend, 2)
        assert done.returncode == 0, done.stderr
        assert read_run(log).problem is None
        assert learnt(read_run(log)) == whole("ddp", 2)
    for backend, state in states.items():
        names = [name for name in state if name != "config"]
        assert names == ["epochs", "model", "optimizer", "random"]
        assert list(state["model"]) == list(states["ddp"]["model"]), backend
        groups = state["optimizer"]["param_groups"], states["ddp"]["optimizer"]["param_groups"]
        assert [g["params"] for g in groups[0]] == [g["params"] for g in groups[1]]
        momenta = state["optimizer"]["state"]
        assert momenta.keys() == states["ddp"]["optimizer"]["state"].keys()
    alike = [s for s in states.values() if len(s["epochs"]) == len(states["ddp"]["epochs"])]
    for state in alike:
        for name, tensor in state["model"].items():
            assert torch.equal(tensor, states["ddp"]["model"][name]), name
