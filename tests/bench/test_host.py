"""Provenance: the code's identity follows bench/ alone, and private variables stay out."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from bench import backends
from bench.backends import catalogue
from bench.backends.protocol import Backend
from bench.config import make_config
from bench.launch.agreement import disagreement, flat
from bench.launch.provenance import (
    changed,
    code,
    code_sha256,
    describe_run,
    placement,
    recorded,
    shared,
)
from bench.launch.world import Launch
from bench.train.device import choose
from plots.analyse import comparability
from tests.bench import ranks

LAUNCH = Launch("mpirun", 0, 2, 0, 2, "k")
ENVIRONMENTS = sorted((Path(__file__).parent / "environments").glob("*.json"))


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> dict[str, Any]:
    git(folder, "add", ".")
    git(folder, "commit", "-m", "more")
    return code(folder / "bench")


def test_only_changes_of_the_measuring_code_count(tmp_path: Path) -> None:
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
    (bench / "loop.py").write_text("other")
    assert code(bench)["bench_dirty"] is True
    third = commit(tmp_path)
    assert third["bench_dirty"] is False
    assert third["bench_tree"] != first["bench_tree"]


def test_without_git_nothing_is_claimed(tmp_path: Path) -> None:
    assert code(tmp_path) == {"commit": None, "bench_tree": None, "bench_dirty": None}


def test_only_listed_variables_are_recorded() -> None:
    env = {"OMP_NUM_THREADS": "1", "AWS_SECRET": "x", "HOROVOD_RANK": "1", "SLURM_JOB_ID": "7"}
    run = describe_run({**env, "OMPI_MCA_orte_top_session_dir": "/tmp"}, {"mpi": "Open MPI"})
    assert run["env"] == {"OMP_NUM_THREADS": "1"}
    assert run["job"] == {"SLURM_JOB_ID": "7"}
    assert run["versions"]["mpi"] == "Open MPI"
    assert run["versions"]["torch"]


# every one of these changed the speed of a training, or what it computed, when it was tried
@pytest.mark.parametrize(
    "name",
    [
        *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "LD_PRELOAD"),
        *("GLIBC_TUNABLES", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"),
        *("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "MKL_CBWR", "TORCH_NCCL_HIGH_PRIORITY"),
        *("TORCHINDUCTOR_MAX_AUTOTUNE", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTHONMALLOC"),
        *("PYTHONTRACEMALLOC", "PYTHONDEVMODE", "MPI4PY_RC_THREAD_LEVEL", "CUDA_LAUNCH_BLOCKING"),
        *("OMPI_MCA_smsc", "OMPI_MCA_osc", "OMPI_MCA_btl_vader_eager_limit"),
        "OMPI_MCA_op_avx_support",
    ],
)
def test_a_variable_that_changes_speed_is_recorded_and_is_the_same_on_all_ranks(name: str) -> None:
    assert recorded({name: "1"}) == {name: "1"}
    ranks = [flat(shared(env, {})) for env in ({}, {name: "1"})]
    wrong = f"ranks differ in env.{name}: None on rank 0, 1 on rank 1; "
    assert str(disagreement(ranks)).startswith(wrong)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "GOMP_CPU_AFFINITY",
            "KMP_AFFINITY",
            "OMP_PLACES",
            "KMP_HW_SUBSET",
            "PRTE_MCA_hwloc_base",
        ),
        *("PMIX_MCA_gds", "GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"),
        *("NCCL_IB_HCA", "UCX_NET_DEVICES"),
        *("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"),
    ],
)
def test_where_a_rank_is_may_differ_and_is_recorded(name: str) -> None:
    assert disagreement([flat(shared(env, {})) for env in ({}, {name: "1"})]) is None
    assert changed(placement({}), placement({name: "1"})) == {name: "1"}
    assert changed(placement({name: "1"}), placement({})) == {name: None}
    assert describe_run({name: "1"}, {})["env"] == {name: "1"}


def test_folders_and_what_launchers_set_are_not_recorded() -> None:
    names = ["TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "NCCL_ROOT", "MIOPEN_USER_DB_PATH"]
    names += ["MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_SIZE"]
    assert recorded(dict.fromkeys([*names, "TORCHELASTIC_RUN_ID"], "1")) == {}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_what_known_launchers_set_parts_no_ranks(path: Path) -> None:
    environments = [rank["env"] for rank in json.loads(path.read_text())["ranks"]]
    assert disagreement([flat(shared(env, {})) for env in environments]) is None
    assert all(changed(placement(environments[0]), placement(env)) == {} for env in environments)


def test_whose_gloo_it_is_is_recorded_and_parts_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "implementation", lambda name: Backend)
    told: list[str] = []
    facts: list[comparability.Facts] = []
    for name, package in (("ddp", "torch"), ("horovod", "horovod")):
        fields = {"backend": name, "world_size": 2, "batch_per_rank": 1}
        for transport in ("mpi", "gloo"):
            config = make_config({**fields, "transport": transport})
            versions = backends.load(config, LAUNCH, choose(config, LAUNCH)).versions
        assert versions == {"gloo": f"bundled with {package} {metadata.version(package)}"}
        told.append(versions["gloo"])
        facts.append(comparability.facts(config, describe_run({}, versions), {}))
    assert told[0] != told[1]
    assert comparability.differences(facts[:1], facts[1:]) == []


@pytest.mark.ranks
def test_two_launches_of_one_launcher_record_the_same(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(  # a file for each rank: a launcher may mix what two ranks print
        "import json, os, sys; from bench.launch.provenance import recorded\n"
        "with open(f'{sys.argv[1]}/{os.getpid()}.json', 'x') as file:\n"
        "    json.dump(recorded(os.environ), file)"
    )
    extra = {"PYTHONPATH": str(ranks.ROOT), "MALLOC_ARENA_MAX": "2"}
    for launch in range(2):
        (tmp_path / str(launch)).mkdir()
        done = ranks.run(ranks.mpirun(2, str(script), str(tmp_path / str(launch))), extra)
        assert done.returncode == 0, done.stderr
    seen = [json.loads(file.read_text()) for file in tmp_path.glob("*/*.json")]
    assert len(seen) == 4
    assert all(env == seen[0] for env in seen)
    assert seen[0]["MALLOC_ARENA_MAX"] == "2"


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
