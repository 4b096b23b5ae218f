"""The parameter server on real ranks: equal to DDP where it waits, counted where it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bench.backends.ps.worker import spread
from bench.config import UsageError, make_config
from bench.record import Run, proof, read_run
from tests.bench.ranks import ROOT, bench, environment, mpirun

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


def test_servers_are_started_beside_the_ranks_that_train() -> None:
    asked = {"backend": "ps", "world_size": 4, "batch_per_rank": 8}
    assert make_config(asked).processes == 5
    served = make_config({**asked, "servers": 3})
    assert (served.processes, served.samples_per_step) == (7, 32)
    assert make_config({**asked, "backend": "ddp"}).processes == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"backend": "ddp", "servers": 2}, "servers has no effect with backend=ddp"),
        ({"backend": "ddp", "mode": "async"}, "mode has no effect with backend=ddp"),
        ({"mode": "async", "clip_norm": 1.0}, "clip_norm=1.0 has no place with mode=async"),
        ({"compression": "fp16"}, "its keys travel as float32"),
        ({"servers": 0}, "servers=0"),
    ],
)
def test_what_a_server_cannot_do_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_config({"backend": "ps", "dataset": "digits", "batch_per_rank": 8, **fields})


def measured(folder: Path, processes: int, *words: str) -> Run:
    log = folder / f"{processes}{''.join(words[-2:])}.jsonl"
    done = bench(processes, *words, "--log-path", str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_run(log)
    assert found.problem is None
    return found


@pytest.mark.ranks
@pytest.mark.parametrize("own", [(), ("--accumulate", "4")])
def test_who_waits_trains_as_ddp_does_to_the_bit(own: tuple[str, ...], tmp_path: Path) -> None:
    ddp = measured(tmp_path, 2, *SERVED, "--backend", "ddp", *own)
    served = measured(tmp_path, 4, *SERVED, *own, "--bucket-mib", "0", "--servers", "2")
    assert served.end["parameters_sha256"] == ddp.end["parameters_sha256"]
    assert [parity["relative_difference"] for parity in served.end["parity"]] == [0.0]
    keys = len(served.end["exchange_bytes"])
    assert keys > 2
    # each server holds some of the keys, and 13 steps of two ranks push each
    updates = [server["updates"] for server in served.end["servers"]]
    assert sum(updates) == 13 * 2 * keys
    assert min(updates) > 0
    assert [server["staleness"] for server in served.end["servers"]] == [[n] for n in updates]
    assert [server["rank"] for server in served.host["servers"]] == [2, 3]


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [1, 3])
def test_who_does_not_wait_learns_and_is_late(ranks: int, tmp_path: Path) -> None:
    words = ["--world-size", str(ranks), "--global-batch", "36", "--servers", "1"]
    # a rate that a gradient late by tens of updates, as on a busy machine, does not overshoot at
    words += ["--epochs", "12", "--target", "0.9", "--base-lr", "0.2", "--windows", "2"]
    words += ["--mode", "async"]
    found = measured(tmp_path, ranks + 1, *SERVED, *words)
    (server,) = found.end["servers"]
    epochs = [event for event in found.events if event["event"] == "epoch"]
    steps = 13 + sum(event["steps"] for event in epochs)
    assert server["updates"] == sum(server["staleness"]) == steps * ranks
    assert "parity" not in found.end["checks"]
    assert all(event["parameters_equal"] for event in epochs)  # judged by what the servers hold
    assert epochs[-1]["correct"] / 359 >= 0.9
    if ranks == 1:  # nobody else moves the parameters
        assert len(server["staleness"]) == 1
    else:
        assert len(server["staleness"]) > 1


@pytest.mark.ranks
def test_one_worker_that_does_not_wait_trains_as_one_process(tmp_path: Path) -> None:
    """The server's step is the optimiser's own."""
    words = ("--world-size", "1", "--epochs", "2", "--nesterov")
    alone = measured(tmp_path, 1, *SERVED, "--backend", "single", *words)
    served = measured(tmp_path, 2, *SERVED, *words, "--mode", "async")

    def losses(found: Run) -> list[float]:
        return [event["loss"] for event in found.events if event["event"] == "epoch"]

    assert losses(served) == losses(alone)


@pytest.mark.ranks
def test_more_servers_than_keys_are_refused_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = bench(5, *SERVED, "--servers", "3", "--log-path", str(log))
    assert done.returncode == 2
    said = "error: servers=3, but the model's parameters make 1 key(s); use fewer servers"
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.ranks
def test_a_world_without_its_servers_is_refused() -> None:
    done = bench(2, *SERVED)
    assert done.returncode == 2
    said = "world_size=2 and servers=1 were asked for, but mpirun started 2 processes; "
    assert f"error: {said}use --world-size 1 or start 3 processes" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.ranks
@pytest.mark.parametrize("victim", ["ranks", "servers"])
def test_a_process_that_is_killed_ends_the_run_in_a_recorded_state(
    victim: str, tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    long = ("--windows", "2000", "--mode", "async", "--log-path", str(log))
    command = mpirun(3, "-m", "bench", *SERVED, *long)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as started:
        deadline = time.monotonic() + 60
        while not (log.exists() and b'"window"' in log.read_bytes()):
            assert time.monotonic() < deadline, "no window was measured"
            time.sleep(0.1)
        host = json.loads(log.read_text().splitlines()[0])["host"]
        last = host[victim][-1]
        os.kill(last["pid"], signal.SIGKILL)
        assert started.wait(60) != 0
    found = read_run(log)
    assert found.state == "failed"
    assert f"rank {last['rank']}" in str(found.problem)


def _counted(*staleness: list[int], **fields: Any) -> str | None:
    """What the proof says of these counts: 5 steps of 2 ranks, 2 keys, 20 updates."""
    asked = {"backend": "ps", "world_size": 2, "batch_per_rank": 4, "warmup_steps": 3, "windows": 1}
    config = make_config({**asked, "steps_per_window": 2, "servers": len(staleness), **fields})
    servers = [{"updates": sum(late), "staleness": late} for late in staleness]
    end = {"event": "end", "servers": servers, "exchange_bytes": [8, 8]}
    return next(proof.served(config, [], end), None)


def test_counts_of_servers_must_add_up() -> None:
    assert _counted([20]) is None
    assert _counted([10], [10]) is None
    assert _counted([12, 6, 2], mode="async") is None
    assert "19 updates, where 20" in str(_counted([19]))
    assert "was late" in str(_counted([19, 1]))
    assert "30 updates, where 20" in str(_counted([12, 6, 12], mode="async"))
