"""Provenance: the code's identity, and of the environment what changes speed alone."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from bench.launch.provenance import (
    changed,
    code_sha256,
    commit,
    describe_run,
    disagreement,
    flat,
    placement,
    recorded,
    shared,
)

ENVIRONMENTS = sorted((Path(__file__).parent / "environments").glob("*.json"))


def test_the_commit_says_whether_files_are_changed(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    (tmp_path / "loop.py").write_text("one")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init"], ["add", "."], ["commit", "-m", "first"]):
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)
    assert re.fullmatch("[0-9a-f]{40}", clean := str(commit(tmp_path)))
    (tmp_path / "loop.py").write_text("other")
    assert commit(tmp_path) == f"{clean}-dirty"


def test_only_listed_variables_are_recorded() -> None:
    env = {"OMP_NUM_THREADS": "1", "AWS_SECRET": "x", "HOROVOD_RANK": "1", "SLURM_JOB_ID": "7"}
    env |= {"OMPI_MCA_orte_top_session_dir": "/tmp"}
    run = describe_run(env, shared(env, {"mpi": "Open MPI"}))
    assert run["env"] == {"OMP_NUM_THREADS": "1"}
    assert run["job"] == {"SLURM_JOB_ID": "7"}
    assert run["versions"]["mpi"] == "Open MPI"
    assert run["versions"]["torch"]


SPEED = ["MALLOC_ARENA_MAX", "LD_PRELOAD", "GLIBC_TUNABLES", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"]
SPEED += ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "TORCH_NCCL_HIGH_PRIORITY", "PYTHONDEVMODE"]
SPEED += ["MPI4PY_RC_THREAD_LEVEL", "CUDA_LAUNCH_BLOCKING", "OMPI_MCA_btl_vader_eager_limit"]
PLACE = ["GOMP_CPU_AFFINITY", "OMP_PLACES", "KMP_HW_SUBSET", "PRTE_MCA_hwloc_base"]
PLACE += ["PMIX_MCA_gds", "GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "NCCL_IB_HCA"]
PLACE += ["UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include"]
NEITHER = ["TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "NCCL_ROOT", "MIOPEN_USER_DB_PATH"]
NEITHER += ["MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "HOROVOD_LOCAL_SIZE", "TORCHELASTIC_RUN_ID"]


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
    assert recorded(dict.fromkeys(NEITHER, "1")) == {}


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
    assert digest(**files, tools__doctor__ranks="x", study__plan="x") == one, "no run loads these"
