"""Ranks that would do different things are refused before the first step, by one line that names
what differs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig
from bench.launch.agreement import disagreement, flat, shared_fields
from bench.record import read_run
from tests.bench.ranks import ROOT, bench, mpirun, run, torchrun

CONFIG = shared_fields(RunConfig(backend="horovod", world_size=2, batch_per_rank=2))
TINY = ["--model", "tests.bench.tiny:plain", "--dataset", "digits", "--world-size", "2"]
SHORT = [
    *TINY,
    "--batch-per-rank",
    "2",
    "--warmup-steps",
    "3",
    "--windows",
    "1",
    "--steps-per-window",
    "2",
]
CELLS = {
    f"{b}/{t}": ["--backend", b, "--transport", t]
    for b in ("ddp", "horovod")
    for t in ("mpi", "gloo")
}


def test_only_folders_may_differ_between_nodes() -> None:
    """Named here so that a field added later is compared unless somebody says otherwise."""
    assert RunConfig.model_fields.keys() - CONFIG.keys() == {
        "log_path",
        "rendezvous_dir",
        "data_dir",
    }


@pytest.mark.parametrize("field", CONFIG)
def test_every_other_field_is_compared(field: str) -> None:
    assert disagreement([CONFIG, CONFIG]) is None
    line = str(disagreement([CONFIG, {**CONFIG, field: "other"}]))
    assert (
        line == f"ranks differ in {field}: {CONFIG[field]} on rank 0, other on rank 1; start every "
        f"rank with the same options"
    )


def test_who_differs_is_told_for_many_ranks() -> None:
    facts: list[dict[str, Any]] = [{"seed": 0, "env.A": "1"} for _ in range(9)]
    for rank in (4, 6, 7):
        facts[rank] = {"seed": 0}
    facts[8] = {"seed": 0, "env.A": "2", "env.B": "x"}
    assert disagreement(facts) == (
        "ranks differ in env.A: 1 on ranks 0-3,5, None on ranks 4,6-7, 2 on rank 8 (and in env.B); "
        "set it on every node alike (mpirun: -x NAME), or on none"
    )


def test_tables_are_compared_entry_by_entry() -> None:
    assert flat({"code_sha256": "a", "versions": {"torch": "2", "mpi": "5"}}) == {
        "code_sha256": "a",
        "versions.torch": "2",
        "versions.mpi": "5",
    }


def require_refusal(done: subprocess.CompletedProcess[str], log: Path, line: str) -> None:
    said = [text for text in done.stderr.splitlines() if text.startswith("error: ")]
    assert said[:1] == [f"error: {line}"], done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    result = read_run(log)
    assert result.state == "failed"
    assert str(result.problem)[len("rank N: ") :] == line, "whichever rank was the first to write"


def two(
    first: Sequence[str], second: Sequence[str], place: Path = ROOT, env: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """`python -m bench` with options of its own on each of two ranks; the second runs in `place`,
    with `env` besides.
    """
    other = ["-n", "1", "--wdir", str(place), "env", *env, sys.executable, "-m", "bench", *second]
    return run([*mpirun(1, "-m", "bench", *first), ":", *other])


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("cell", "option", "values"),
    [
        ("ddp/mpi", "--steps-per-window", ("2", "3")),
        ("ddp/mpi", "--image-size", ("32", "64")),
        ("horovod/mpi", "--windows", ("1", "2")),
        ("horovod/mpi", "--model", ("tests.bench.tiny:plain", "tests.bench.tiny:normalised")),
        ("ddp/gloo", "--precision", ("float32", "bf16-mixed")),
        ("horovod/gloo", "--seed", ("0", "1")),
    ],
)
def test_ranks_with_different_options_are_refused(
    tmp_path: Path, cell: str, option: str, values: tuple[str, str]
) -> None:
    log = tmp_path / "run.jsonl"
    first, second = (
        [*SHORT, *CELLS[cell], "--log-path", str(log), option, value] for value in values
    )
    field = option[2:].replace("-", "_")
    line = (
        f"ranks differ in {field}: {values[0]} on rank 0, {values[1]} on rank 1; start every "
        f"rank with the same options"
    )
    require_refusal(two(first, second), log, line)


@pytest.mark.ranks
def test_ranks_with_different_frameworks_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    first, second = (
        [*SHORT, "--log-path", str(log), "--backend", backend] for backend in ("ddp", "horovod")
    )
    line = (
        "ranks differ in backend: ddp on rank 0, horovod on rank 1; start every rank with the "
        "same options"
    )
    require_refusal(two(first, second), log, line)


@pytest.mark.ranks
def test_torchruns_ranks_with_different_options_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    words = " ".join(
        [
            sys.executable,
            "-m",
            "bench",
            *SHORT,
            *CELLS["ddp/gloo"],
            "--log-path",
            str(log),
            "--seed $RANK",
        ]
    )
    done = run([word for word in torchrun(2, "--no-python", "sh", "-c", words) if word])
    assert "error: ranks differ in seed: 0 on rank 0, 1 on rank 1; start every rank" in done.stderr
    assert read_run(log).state == "failed"


@pytest.mark.ranks
def test_ranks_with_different_data_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = bench(
        2,
        *SHORT,
        *CELLS["ddp/mpi"],
        "--dataset",
        "tests.bench.own_data:of_its_rank",
        "--log-path",
        str(log),
    )
    shared = "give every rank the same data set and the same model"
    more = "(and in workload.steps_per_epoch)"
    line = f"ranks differ in workload.samples: 100 on rank 0, 104 on rank 1 {more}; {shared}"
    require_refusal(done, log, line)


@pytest.mark.ranks
def test_ranks_with_different_code_are_refused(tmp_path: Path) -> None:
    """A node with a stale copy: rank 1 runs in a checkout of its own, in which one file of the
    measuring code differs.
    """
    for folder in ("bench", "tests"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("golden", "__pycache__")
        )
    with (tmp_path / "bench" / "train.py").open("a") as file:
        file.write("# stale\n")
    log = tmp_path / "run.jsonl"
    options = [*SHORT, *CELLS["horovod/mpi"], "--log-path", str(log)]
    done = two(options, options, tmp_path)
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("error: ")]
    assert line.startswith("error: ranks differ in code_sha256: ")
    assert line.endswith(" on rank 1; bring the same files to every node")
    assert done.returncode == 2
    assert read_run(log).state == "failed"


@pytest.mark.ranks
def test_ranks_with_different_variables_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    options = [*SHORT, *CELLS["horovod/gloo"], "--log-path", str(log)]
    done = two(options, options, env=["MALLOC_MMAP_THRESHOLD_=4096"])
    name, cure = (
        "env.MALLOC_MMAP_THRESHOLD_",
        "set it on every node alike (mpirun: -x NAME), or on none",
    )
    require_refusal(done, log, f"ranks differ in {name}: None on rank 0, 4096 on rank 1; {cure}")


@pytest.mark.ranks
def test_the_place_of_a_rank_may_differ_and_is_recorded(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    options = [*SHORT, *CELLS["ddp/mpi"], "--log-path", str(log)]
    done = two(options, options, env=["GOMP_CPU_AFFINITY=1", "UCX_NET_DEVICES=eth0"])
    assert done.returncode == 0, done.stderr
    host = read_run(log).host
    assert [rank["env"] for rank in host["ranks"]] == [
        {},
        {"GOMP_CPU_AFFINITY": "1", "UCX_NET_DEVICES": "eth0"},
    ]
    assert "UCX_NET_DEVICES" not in host["env"]
