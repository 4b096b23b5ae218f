"""The parameter server on real ranks: equal to DDP where it waits, learning where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.backends.parameter_server import spread
from bench.record import Run, read_run
from bench.study import comparability
from tests.bench.ranks import bench

DIGITS = ("--model", "mlp", "--dataset", "digits", "--image-size", "8", "--base-lr", "0.8")
SHORT = ("--warmup-steps", "3", "--windows", "2", "--steps-per-window", "5", "--global-batch", "32")
SERVED = ("--backend", "ps", "--world-size", "2", *DIGITS, *SHORT)


@pytest.mark.parametrize(
    ("sizes", "servers", "holders"),
    [
        ([5], 1, [0]),
        ([1, 2, 3], 2, [1, 1, 0]),
        ([4, 4, 4, 4], 2, [0, 1, 0, 1]),
        ([1, 9, 1, 1], 3, [1, 0, 2, 1]),
    ],
)
def test_keys_are_spread_by_their_size(sizes: list[int], servers: int, holders: list[int]) -> None:
    assert spread(sizes, servers) == holders


def measured(folder: Path, processes: int, *words: str) -> Run:
    log = folder / f"{processes}{''.join(words[-2:])}.jsonl"
    done = bench(processes, *words, "--log-path", str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    run = read_run(log)
    assert run.problem is None
    return run


@pytest.mark.ranks
def test_who_waits_trains_as_ddp_does_to_the_bit(tmp_path: Path) -> None:
    ddp = measured(tmp_path, 2, *SERVED, "--backend", "ddp", "--accumulate", "4")
    served = measured(tmp_path, 2, *SERVED, "--accumulate", "4", "--bucket-mib", "0")
    assert served.end["parameters_sha256"] == ddp.end["parameters_sha256"]
    assert len(served.end["exchange_bytes"]) > 2  # so that each rank holds some of the keys
    assert ddp.config is not None
    facts = comparability.facts(ddp.config, ddp.host, ddp.end, ddp.workload)
    assert facts["wire"] == "no TCP", "MPI's shared memory"


@pytest.mark.ranks
def test_who_does_not_wait_learns(tmp_path: Path) -> None:
    words = ["--world-size", "3", "--global-batch", "36", "--bucket-mib", "0", "--mode", "async"]
    # a rate that a gradient late by tens of updates, as on a busy machine, does not overshoot at
    words += ["--epochs", "12", "--target", "0.9", "--base-lr", "0.2", "--windows", "2"]
    run = measured(tmp_path, 3, *SERVED, *words)
    epochs = [event for event in run.events if event["event"] == "epoch"]
    assert "parity" not in run.end["checks"]
    assert all(event["parameters_equal"] for event in epochs)  # judged by what the servers hold
    assert epochs[-1]["correct"] / 359 >= 0.9


@pytest.mark.ranks
def test_one_worker_that_does_not_wait_trains_as_one_process(tmp_path: Path) -> None:
    """The server's step is the optimiser's own."""
    words = ("--world-size", "1", "--epochs", "2", "--nesterov")
    alone = measured(tmp_path, 1, *SERVED, "--backend", "single", *words)
    served = measured(tmp_path, 1, *SERVED, *words, "--mode", "async")
    losses = [[e["loss"] for e in r.events if e["event"] == "epoch"] for r in (alone, served)]
    assert losses[0] == losses[1]
