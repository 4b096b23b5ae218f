"""Ranks that would do different things are refused before the first step; one line says which."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig
from bench.launch.provenance import disagreement, shared_fields
from bench.record import read_run
from tests.bench.rank_pool import Case
from tests.bench.ranks import ROOT, bench, each, environment

CONFIG = shared_fields(RunConfig(backend="horovod", world_size=2, batch_per_rank=2))
TINY = ["--model", "tests.bench.tiny:plain", "--dataset", "digits", "--world-size", "2"]
SHORT = [*TINY, "--batch-per-rank", "2", "--warmup-steps", "3", "--windows", "1"]
SHORT += ["--steps-per-window", "2"]
CELLS = {f"{b}/gloo": ["--backend", b, "--transport", "gloo"] for b in ("ddp", "horovod")}
ALIKE = "start every rank with the same options"


def test_only_folders_may_differ_between_nodes() -> None:
    """Named here so that a field added later is compared unless somebody says otherwise."""
    folders = {"log_path", "data_dir"}
    assert RunConfig.model_fields.keys() - CONFIG.keys() == folders
    assert disagreement([CONFIG, CONFIG]) is None
    line = disagreement([CONFIG, {**CONFIG, "seed": "other"}])
    assert line == f"ranks differ in seed: 0 on rank 0, other on rank 1; {ALIKE}"


def test_who_differs_is_told_for_many_ranks() -> None:
    facts: list[dict[str, Any]] = [{"seed": 0, "env.A": "1"} for _ in range(9)]
    for rank in (4, 6, 7):
        facts[rank] = {"seed": 0}
    facts[8] = {"seed": 0, "env.A": "2"}
    assert disagreement(facts) == (
        "ranks differ in env.A: 1 on ranks 0-3,5, None on ranks 4,6-7, 2 on rank 8; "
        "set it on every node alike (mpirun: -x NAME), or on none"
    )


def require_refusal(done: subprocess.CompletedProcess[str], log: Path, line: str) -> None:
    said = re.findall(r"(?m)^error: (?:rank 1: )?(.*)", done.stderr)  # the first, if rank 0 is late
    assert said[:1] == [line], done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    result = read_run(log)
    assert result.state == "failed"
    assert str(result.problem)[len("rank N: ") :] == line, "whichever rank was the first to write"


def two(
    first: Sequence[str], second: Sequence[str], env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a case with its own options on each of two ranks; the second with `env`."""
    one = Case(["bench", *first], environment(), str(ROOT))
    return each([one, Case(["bench", *second], environment(env or {}), str(ROOT))])


@pytest.mark.ranks
def test_ranks_with_different_options_are_refused_over_mpi(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    shared = [*SHORT, "--backend", "ddp", "--transport", "mpi", "--log-path", str(log), "--seed"]
    line = f"ranks differ in seed: 0 on rank 0, 1 on rank 1; {ALIKE}"
    require_refusal(two([*shared, "0"], [*shared, "1"]), log, line)


@pytest.mark.ranks
def test_ranks_with_another_layout_of_the_model_are_refused(tmp_path: Path) -> None:
    """The number of trained parameters is equal, so that what is exchanged first would hang."""
    log, model = tmp_path / "run.jsonl", "tests.bench.tiny:with_a_frozen_layer"
    words = [*SHORT, *CELLS["horovod/gloo"], "--image-size", "8", "--model", model]
    done = bench(2, *words, "--log-path", str(log))
    line = "ranks differ in state_dict.1.weight: float32 parameter [192, 192] on rank 0, float32 "
    line += "parameter frozen [192, 192] on rank 1; give every rank the same model"
    require_refusal(done, log, line)


@pytest.mark.ranks
def test_the_place_of_a_rank_may_differ_and_is_recorded(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    options = [*SHORT, *CELLS["ddp/gloo"], "--log-path", str(log)]
    own = {"GOMP_CPU_AFFINITY": "1", "UCX_NET_DEVICES": "eth0"}
    done = two(options, options, own)
    assert done.returncode == 0, done.stderr
    host = read_run(log).host
    assert [rank["env"] for rank in host["ranks"]] == [{}, own]
    assert "UCX_NET_DEVICES" not in host["env"]
