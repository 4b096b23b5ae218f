"""Provenance: the code's identity follows bench/ alone, and private variables stay out."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.host import code, describe_run


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_only_changes_of_the_measuring_code_count(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "loop.py").write_text("one")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    first = code(bench)
    (tmp_path / "README.md").write_text("words")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "two")
    second = code(bench)
    assert first["commit"] != second["commit"]
    assert first["bench_tree"] == second["bench_tree"]
    assert first["bench_dirty"] is second["bench_dirty"] is False
    (bench / "loop.py").write_text("other")
    assert code(bench)["bench_dirty"] is True
    git(tmp_path, "commit", "-am", "three")
    third = code(bench)
    assert third["bench_dirty"] is False
    assert third["bench_tree"] != first["bench_tree"]


def test_without_git_nothing_is_claimed(tmp_path: Path) -> None:
    assert code(tmp_path) == {"commit": None, "bench_tree": None, "bench_dirty": None}


def test_what_was_set_for_one_backend_alone_is_recorded_whatever_its_name() -> None:
    env = {"BENCH_BACKEND_ENV": "MV2_SUPPORT_DL LD_PRELOAD GONE", "MV2_SUPPORT_DL": "1", "LD_PRELOAD": "x.so", "MVP_USE": "2"}
    run = describe_run(env, {})
    assert run["backend_env"] == {"MV2_SUPPORT_DL": "1", "LD_PRELOAD": "x.so"}
    assert run["env"] == {"MV2_SUPPORT_DL": "1", "MVP_USE": "2"}
    assert describe_run({"MV2_SUPPORT_DL": "1"}, {})["backend_env"] == {}


def test_only_listed_variables_are_recorded() -> None:
    env = {
        "OMP_NUM_THREADS": "1",
        "AWS_SECRET": "x",
        "OMPI_MCA_orte_top_session_dir": "/tmp",
        "HOROVOD_RANK": "1",
        "SLURM_JOB_ID": "7",
    }
    run = describe_run(env, {"mpi": "Open MPI"})
    assert run["env"] == {"OMP_NUM_THREADS": "1"}
    assert run["job"] == {"SLURM_JOB_ID": "7"}
    assert run["versions"]["mpi"] == "Open MPI"
    assert run["versions"]["torch"]
