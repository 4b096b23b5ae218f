"""Provenance: the code's identity follows bench/ alone, and private variables stay out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.launch import machine
from bench.launch.machine import Ticks, busy_share
from bench.launch.provenance import (
    changed,
    code,
    code_sha256,
    describe_run,
    disagreement,
    flat,
    placement,
    recorded,
    shared,
)

ENVIRONMENTS = sorted((Path(__file__).parent / "environments").glob("*.json"))


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> dict[str, Any]:
    git(folder, "add", ".")
    git(folder, "commit", "-m", "more")
    return code(folder / "bench")


def test_only_changes_of_the_measuring_code_count(tmp_path: Path) -> None:
    assert code(tmp_path) == {"commit": None, "bench_tree": None, "bench_dirty": None}
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "loop.py").write_text("one")
    git(tmp_path, "init")
    first = commit(tmp_path)
    (tmp_path / "README.md").write_text("words")
    second = commit(tmp_path)
    assert first["commit"] != second["commit"]
    assert first["bench_tree"] == second["bench_tree"]
    assert first["bench_dirty"] is second["bench_dirty"] is False
    (tmp_path / "README.md").write_text("more words")
    assert code(bench)["bench_dirty"] is False
    (bench / "loop.py").write_text("other")
    assert code(bench)["bench_dirty"] is True
    third = commit(tmp_path)
    assert third["bench_dirty"] is False
    assert third["bench_tree"] != first["bench_tree"]


def test_only_listed_variables_are_recorded() -> None:
    env = {"OMP_NUM_THREADS": "1", "AWS_SECRET": "x", "HOROVOD_RANK": "1", "SLURM_JOB_ID": "7"}
    run = describe_run({**env, "OMPI_MCA_orte_top_session_dir": "/tmp"}, {"mpi": "Open MPI"})
    assert run["env"] == {"OMP_NUM_THREADS": "1"}
    assert run["job"] == {"SLURM_JOB_ID": "7"}
    assert run["versions"]["mpi"] == "Open MPI"
    assert run["versions"]["torch"]


# every one of these changed the speed of a training, or what it computed, when it was tried
SPEED = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "LD_PRELOAD"]
SPEED += ["GLIBC_TUNABLES", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"]
SPEED += ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "MKL_CBWR", "TORCH_NCCL_HIGH_PRIORITY"]
SPEED += ["TORCHINDUCTOR_MAX_AUTOTUNE", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTHONMALLOC"]
SPEED += ["PYTHONTRACEMALLOC", "PYTHONDEVMODE", "MPI4PY_RC_THREAD_LEVEL", "CUDA_LAUNCH_BLOCKING"]
SPEED += ["OMPI_MCA_smsc", "OMPI_MCA_osc", "OMPI_MCA_btl_vader_eager_limit"]
SPEED += ["OMPI_MCA_op_avx_support"]
PLACE = ["GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "KMP_HW_SUBSET", "PRTE_MCA_hwloc_base"]
PLACE += ["PMIX_MCA_gds", "GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"]
PLACE += ["NCCL_IB_HCA", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include"]
PLACE += ["OMPI_MCA_btl_tcp_if_exclude"]
FOLDERS = ["TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "NCCL_ROOT", "MIOPEN_USER_DB_PATH"]
OF_LAUNCH = ["MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "HOROVOD_LOCAL_SIZE", "TORCHELASTIC_RUN_ID"]


def test_what_changes_speed_is_recorded_and_is_the_same_on_all_ranks() -> None:
    for name in SPEED:
        assert recorded({name: "1"}) == {name: "1"}
        ranks = [flat(shared(env, {})) for env in ({}, {name: "1"})]
        wrong = f"ranks differ in env.{name}: None on rank 0, 1 on rank 1; "
        assert str(disagreement(ranks)).startswith(wrong)


def test_where_a_rank_is_may_differ_and_is_recorded() -> None:
    for name in PLACE:
        assert disagreement([flat(shared(env, {})) for env in ({}, {name: "1"})]) is None
        assert changed(placement({}), placement({name: "1"})) == {name: "1"}
        assert changed(placement({name: "1"}), placement({})) == {name: None}
        assert describe_run({name: "1"}, {})["env"] == {name: "1"}
    assert recorded(dict.fromkeys([*FOLDERS, *OF_LAUNCH], "1")) == {}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_what_known_launchers_set_parts_no_ranks(path: Path) -> None:
    environments = [rank["env"] for rank in json.loads(path.read_text())["ranks"]]
    assert disagreement([flat(shared(env, {})) for env in environments]) is None
    assert all(changed(placement(environments[0]), placement(env)) == {} for env in environments)


def test_the_measuring_code_is_told_apart_without_git(tmp_path: Path) -> None:
    def digest(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            path = folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return code_sha256(folder)

    files = {"train": "step()", "data__order": "a"}
    one = digest(**files)
    assert digest(**files) == one
    changes = [{"train": "sleep(); step()"}, {"data__order": "b"}, {"more": ""}]
    others = [digest(**files | change) for change in changes]
    assert len({one, *others, digest(train="step()", data__other="a")}) == 5
    tools = {"tools__setup__steps": "x", "tools__doctor__ranks": "x", "study__plan": "x"}
    assert digest(**files, **tools) == one, "no run loads these"


STAT = """cpu  9 9 9 9 9 9 9 9 9 9
cpu0 10 0 20 60 5 1 1 3 99 99
cpu1 100 0 0 0 0 0 0 0 0 0
cpu10 1000 0 0 0 0 0 0 0 0 0
"""


def test_busy_cores_are_those_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text(STAT)
    monkeypatch.setattr(machine, "_STAT", tmp_path / "stat")
    for affinity, expected in (
        ({0}, Ticks(worked=30, interrupted=2, stolen=3, idle=65)),
        ({0, 1}, Ticks(130, 2, 3, 65)),
        ({0, 2}, None),
    ):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, known=affinity: known)
        assert machine.core_ticks() == expected
    assert machine.node_ticks() == Ticks(27, 18, 9, 18)
    assert busy_share(Ticks(30, 2, 3, 65), Ticks(50, 7, 8, 75)) == 0.75
    assert busy_share(Ticks(1, 0, 0, 1), Ticks(1, 0, 0, 1)) is None
    assert busy_share(None, Ticks(1, 0, 0, 1)) is None
