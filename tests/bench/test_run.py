"""python -m bench as a user meets it: launchers, wrong worlds, and the state of each end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.record import read_run
from bench.study import comparability
from bench.study.rows import others_share
from tests.bench.ranks import bench, run, torchrun

pytestmark = pytest.mark.ranks

TINY = ["--model", "tests.bench.tiny:normalised", "--dataset", "digits", "--batch-per-rank", "8"]
SHORT = [*TINY, "--warmup-steps", "3", "--windows", "2", "--steps-per-window", "3"]


def pair(backend: str, transport: str) -> list[str]:
    return ["--backend", backend, "--transport", transport, "--world-size", "2"]


def error_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """List the errors, but none that a rank repeats as its launcher does not end it soon."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    first = [re.sub(r"^error: rank [1-9]\d*: ", "error: ", line) for line in lines]
    return [a for a, b in zip(lines, first, strict=True) if a == b or b not in lines]


def test_one_process(tmp_path: Path) -> None:
    log = tmp_path / "single.jsonl"
    done = bench(1, *SHORT, "--threads", "2", "--inject-ms", "20", "--log-path", str(log))
    assert done.returncode == 0, done.stderr
    result = read_run(log)
    assert result.problem is None
    assert min(result.step_seconds()[0]) >= 0.02, "the sleep is a part of every timed step"
    assert [len(steps) for steps in result.step_seconds()] == [6]
    assert [len(steps) for steps in result.step_seconds("warmup")] == [3]
    rank = result.host["ranks"][0]
    assert (rank["threads"], result.host["env"]["OMP_NUM_THREADS"]) == (2, "2")
    assert rank["affinity"] == sorted(os.sched_getaffinity(0))
    assert result.end["samples"] == 9 * 8
    for name in ("steal_jiffies", "busy_jiffies", "idle_jiffies", "own_jiffies"):
        assert 0 <= rank[name] <= result.end[name][0], name
    assert result.end["own_jiffies"][0] > rank["own_jiffies"], "it trained"
    assert 0 <= (others_share(result) or 0.0) < 1
    assert result.workload["dropped_per_epoch"] == 1797 % 8
    assert "window 2/2" in done.stderr, "a batch log shows plain progress"
    # a window holds its steps and the clock readings between them, nothing else
    steps = result.step_seconds()[0]
    inside = [sum(steps[:3]), sum(steps[3:])]
    between = [seconds - own for seconds, own in zip(result.window_seconds, inside, strict=True)]
    assert min(between) >= 0
    assert min(between) < 0.05 * max(inside) + 0.001  # a busy machine may interrupt either


def test_two_ranks_log_where_they_ran(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = bench(2, *SHORT, *pair("horovod", "gloo"), "--log-path", str(log))
    assert done.returncode == 0, done.stderr
    result = read_run(log)
    assert result.problem is None
    assert [r["rank"] for r in result.host["ranks"]] == [0, 1]
    assert [r["source"] for r in result.host["ranks"]] == ["mpirun"] * 2
    env = result.host["env"]
    assert env["GLOO_SOCKET_IFNAME"] == env["HOROVOD_GLOO_IFACE"] == "lo"
    yields = env.get("OMPI_MCA_mpi_yield_when_idle") == "1"
    assert yields or len(os.sched_getaffinity(0)) > 2
    assert len(result.step_seconds()) == 2
    assert result.end["samples"] == 9 * 16
    assert result.config is not None
    facts = comparability.facts(result.config, result.host, result.end, result.workload)
    assert facts["wire"] == "TCP over lo"


def test_silent_worlds_of_one_rank_are_refused(tmp_path: Path) -> None:
    """torchrun does not start MPI: every rank would be a world of its own."""
    log = tmp_path / "run.jsonl"
    done = run(torchrun(2, "-m", "bench", *SHORT, *pair("ddp", "mpi"), "--log-path", str(log)))
    assert done.returncode != 0
    (line,) = error_lines(done)
    assert "torchrun started 2 ranks, but MPI" in line
    assert "sees a world of 1" in line
    assert "mpirun" in line
    assert "--transport gloo" in line
    assert read_run(log).state == "wrong world"


def test_a_world_of_the_wrong_size(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    alone = bench(1, *SHORT, *pair("ddp", "mpi"), "--log-path", str(log))
    assert alone.returncode == 2
    assert "mpirun -n 2" in error_lines(alone)[0]
    assert not log.exists(), "nothing is in the way of the next attempt"
    three = bench(3, *SHORT, *pair("ddp", "mpi"), "--study", "mine", "--log-path", str(log))
    assert three.returncode == 2
    (line,) = error_lines(three)  # one rank speaks for all
    assert "mpirun started 3 ranks" in line
    result = read_run(log)
    assert (result.state, result.problem) == ("wrong world", line.replace("error", "rank 0"))
    assert result.host["launch"]["size"] == 3


def test_input_errors_are_one_line_and_load_no_torch(tmp_path: Path) -> None:
    existing = tmp_path / "old.jsonl"
    existing.write_text("kept")
    code = "import sys, bench.command as m; rc = m.main(sys.argv[1:]);"
    code += "assert 'torch' not in sys.modules; sys.exit(rc)"
    for argv in (["--batch-per-rank", "x"], ["--bogus"], [], [*SHORT, "--log-path", str(existing)]):
        done = run([sys.executable, "-c", code, *argv])
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("error: ")
    assert existing.read_text() == "kept"
    assert run([sys.executable, "-m", "bench", "--help"]).returncode == 0


def test_errors_found_with_torch_are_one_line_and_recorded(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = bench(1, *SHORT, "--model", "vit_b_16", "--log-path", str(log))
    assert done.returncode == 2
    (line,) = error_lines(done)
    assert "cannot train on a batch of shape [8, 3, 32, 32]" in line
    assert "Traceback" not in done.stderr
    assert read_run(log).state == "failed"


def test_horovod_missing(tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("raise ImportError('no such build')")
    done = bench(2, *SHORT, *pair("horovod", "mpi"), extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    (line,) = error_lines(done)
    assert "no such build" in line
    assert "make setup" in line


def test_a_loss_that_explodes_is_not_ok_and_was_foretold(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = bench(1, *SHORT, "--base-lr", "32000", "--log-path", str(log))
    assert done.returncode == 1
    _, warning, *_, last = done.stderr.splitlines()
    steep = "learning rate 1000 from the first step will probably make the loss explode"
    assert warning.startswith(f"warning: {steep}")
    assert "FAILED CHECKS loss_bounded" in last
    assert "img/sec" not in done.stdout, "no number that does not count"
    assert "--max-lr" in last
    result = read_run(log)
    assert result.end["status"] == "failed: loss_bounded"
    good = ("samples_per_step", "torch_settings_kept", "loss_finite", "parameters_equal", "parity")
    assert result.end["checks"] == {**dict.fromkeys(good, True), "loss_bounded": False}
    assert (result.state, result.problem) == ("failed", "loss_bounded")


def test_ctrl_c_leaves_an_interrupted_log(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    words = [*SHORT, "--model", "tests.bench.tiny:stops", "--image-size", "8", "--windows", "4"]
    done = bench(1, *words, "--log-path", str(log))
    result = read_run(log)
    assert (done.returncode, result.state) == (128 + signal.SIGINT, "interrupted")
    assert result.end["signal"] == "SIGINT"
    assert len(result.windows) == 2, "what was measured before stays"
