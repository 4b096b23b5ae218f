"""The launch: its table and what is refused, the words that start ranks, and their resources."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.config import RunConfig, UsageError
from bench.launch import launcher
from bench.launch.world import (
    Launch,
    advice,
    agent_store,
    discover,
    environment,
    expand_tasks_per_node,
    meeting_folder,
    require_mpi_world,
    require_unmodified,
    require_world,
)
from bench.record import read_run
from tests.bench import ranks

ENVIRONMENTS = sorted((Path(__file__).parent / "environments").glob("*.json"))


def ranked(prefix: str, *values: int, **more: str) -> dict[str, str]:
    """Make variables of one prefix with rank, size, local rank and local size, and others."""
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    return {prefix + name: str(n) for name, n in zip(names, values, strict=True)} | more


TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}
AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
MPIRUN = ranked("OMPI_COMM_WORLD_", 3, 4, 1, 2, PMIX_NAMESPACE="prterun-n1-77@1")
HOROVODRUN = ranked("HOROVOD_", 1, 2, 0, 1, HOROVOD_GLOO_RENDEZVOUS_ADDR="n1")
MVAPICH = ranked("MV2_COMM_WORLD_", 1, 2, 1, 2)
PALS = ranked("PMI_", 1, 2, 0, 1, PALS_APID="7")
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
BATCH_SHELL = {"SLURM_JOB_ID": "42", "SLURM_PROCID": "0", "SLURM_NTASKS": "5"}
BATCH_SHELL |= {"SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
SRUN = BATCH_SHELL | {"SLURM_PROCID": "4", "SLURM_NODEID": "2", "SLURM_STEP_ID": "7"}
SRUN |= {"SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "3,1(x2)"}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_environments_of_real_launchers(path: Path) -> None:
    """Each file says whether its environments were recorded, or written down from documentation."""
    file = json.loads(path.read_text())
    assert file["source"] in ("recorded", "written down")
    for rank in file["ranks"]:
        assert discover(rank["env"]) == Launch(*rank["launch"])
    assert len({rank["launch"][5] for rank in file["ranks"]}) == 1, "ranks share their launch's key"


def test_precedence() -> None:
    inherited = SRUN | {"SLURM_PROCID": "0"}  # what ranks of mpirun inside a job see
    assert discover(inherited | MPIRUN).source == "mpirun"
    order = {"srun": inherited, "pals": PALS, "hydra": HYDRA, "mpirun_rsh": MVAPICH}
    order |= {"mpirun": MPIRUN, "horovodrun": HOROVODRUN, "torchrun": TORCHRUN}
    seen: dict[str, str] = {}
    for source, env in order.items():  # weakest first: each wins over all before it
        seen |= env
        assert discover(seen).source == source
    pmi2 = SRUN | {"PMI_RANK": "4", "PMI_SIZE": "5"}  # srun --mpi=pmi2
    assert discover(pmi2) == Launch("srun", 4, 5, 0, 1, "42.7")
    first_node = SRUN | {"SLURM_NODEID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    assert discover(first_node).local_size == 3
    assert discover(SRUN | {"SLURM_RESTART_COUNT": "1"}).key != discover(SRUN).key


@pytest.mark.parametrize("step", ["batch", "4294967290"])
def test_slurm_outside_a_numbered_step_is_no_launch(step: str) -> None:
    assert discover(SRUN | {"SLURM_STEP_ID": step}).source == "none"


SERVED = {**TORCHRUN, **AGENT, "MASTER_ADDR": "n1"}
NODES = "SLURM_STEP_TASKS_PER_NODE"
SIZELESS = {k: v for k, v in MPIRUN.items() if not k.endswith("SIZE")}
PMI = {"PMI_RANK": "0", "PMI_SIZE": "2"}


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANK": "0"}, ["RANK='0'", "WORLD_SIZE is not", "unset RANK"]),
        ({"MPI_LOCALRANKID": "0"}, ["MPI_LOCALRANKID='0'", "PMI_RANK is not", "hydra"]),
        (PMI, ["PMI_RANK='0'", "no launcher known here", "unset PMI_RANK"]),
        ({"PMIX_RANK": "1"}, ["PMIX_RANK='1'", "mpirun, srun or torchrun"]),
        (SIZELESS, ["OMPI_COMM_WORLD_SIZE is not", "mpirun"]),
        (TORCHRUN | {"RANK": "8"}, ["rank 8 of 8", "impossible"]),
        (TORCHRUN | {"LOCAL_RANK": "4"}, ["local rank 4 of 4", "impossible"]),
        (TORCHRUN | {"RANK": "one"}, ["RANK='one'", "whole number"]),
        (SRUN | {NODES: "3;1"}, ["'3;1'", "3,1(x2)"]),
        (SRUN | {"SLURM_NODEID": "3"}, ["SLURM_NODEID=3", "beyond"]),
    ],
)
def test_half_set_and_impossible_launches(env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        discover(env)
    for word in words:
        assert word in str(error.value)


def test_an_agents_store_is_torchruns_alone() -> None:
    assert expand_tasks_per_node("4(x3),1") == [4, 4, 4, 1]
    assert discover(SERVED) == discover(TORCHRUN)
    assert discover(MPIRUN | AGENT).source == "mpirun", "inherited, and not its own"
    assert agent_store("torchrun", AGENT)
    assert not agent_store("mpirun", AGENT)
    assert not agent_store("torchrun", {"TORCHELASTIC_USE_AGENT_STORE": "False"})


def test_a_world_of_another_size_names_the_cure() -> None:
    require_world(discover(MPIRUN), 4, {})
    wrong = r"world_size=2 .* mpirun started 4 ranks; use --world-size 4 or start 2"
    with pytest.raises(UsageError, match=wrong):
        require_world(discover(MPIRUN), 2, {})
    with pytest.raises(UsageError, match=r"alone .*mpirun -n 2 --bind-to none python -m bench"):
        require_world(discover({}), 2, {})
    with pytest.raises(UsageError, match=r"batch shell.*srun --mpi=pmix -n 5 python -m bench"):
        require_world(discover(BATCH_SHELL), 5, BATCH_SHELL)


def test_silent_worlds_of_one_rank_are_an_error() -> None:
    require_mpi_world(discover(SRUN), 5, "Open MPI v5")
    wrong = r"srun started 5 ranks, but MPI \(Open MPI v5\) sees a world of 1.*--mpi=pmix"
    with pytest.raises(UsageError, match=wrong):
        require_mpi_world(discover(SRUN), 1, "Open MPI v5")


def test_where_ranks_meet() -> None:
    here, apart = discover(MPIRUN | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}), discover(MPIRUN)
    assert meeting_folder(apart, Path("/logs/a.jsonl")) == Path("/logs")
    assert meeting_folder(here, Path("/logs/a.jsonl")).is_dir(), "a node needs no shared one"
    with pytest.raises(UsageError, match="--log-path on shared storage"):
        meeting_folder(apart, None)


HOSTS = ("n1", "n2", "n3")


def test_srun_names_the_first_hosts_that_the_ranks_fill() -> None:
    words = launcher.command(
        "srun", 5, args=["--mpi=pmix"], hosts=HOSTS, ranks_per_node=3, cpus_per_rank=4
    )
    places = ["--nodes=2", "--nodelist=n1,n2", "--ntasks=5", "--ntasks-per-node=3"]
    assert words == ["srun", *places, "--cpus-per-task=4", "--mpi=pmix"]
    alone = launcher.command("srun", 1, hosts=HOSTS[2:], ranks_per_node=3)
    assert alone == ["srun", "--nodes=1", "--nodelist=n3", "--ntasks=1", "--ntasks-per-node=1"]


def test_mpirun_is_found_by_name_or_place() -> None:
    words = launcher.command("mpirun", 2, program="/opt/mpirun", args=("--bind-to", "none"))
    assert words == ["/opt/mpirun", "--bind-to", "none", "-n", "2"]
    assert launcher.command("mpirun", 2)[0] == "mpirun"


def test_root_is_allowed_and_the_users_word_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "OMPI_ALLOW_RUN_AS_ROOT"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert launcher.root_variables({name: "0"}) == {name: "0", f"{name}_CONFIRM": "1"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert launcher.root_variables({}) == {}


SHORT = ["--model", "tests.bench.tiny:normalised", "--dataset", "digits", "--batch-per-rank", "8"]
SHORT += ["--warmup-steps", "3", "--windows", "1", "--steps-per-window", "3", "--world-size", "2"]


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("source", "start", "backend"),
    [("hydra", ranks.mpich, "ddp"), ("horovodrun", ranks.horovodrun, "horovod")],
)
def test_gloo_needs_no_matching_mpi(
    tmp_path: Path, source: str, start: Callable[..., list[str]], backend: str
) -> None:
    """Real launchers; this environment's mpirun is in test_run.py."""
    log = tmp_path / "run.jsonl"
    words = ["--backend", backend, "--transport", "gloo", "--log-path", str(log)]
    done = ranks.run(start(2, "-m", "bench", *SHORT, *words), timeout_s=100)
    assert done.returncode == 0, done.stdout + done.stderr
    result = read_run(log)
    assert result.problem is None
    assert [r["source"] for r in result.host["ranks"]] == [source] * 2
    assert result.host["versions"]["gloo"].startswith("bundled with ")
    env = result.host["env"]
    assert env["GLOO_SOCKET_IFNAME"] == env["HOROVOD_GLOO_IFACE"] == "lo"


HERE = Launch("mpirun", 0, 2, 0, 2, "k")
APART = Launch("srun", 0, 2, 0, 1, "k")
DDP = RunConfig(backend="ddp", world_size=2, batch_per_rank=1)


def test_all_ranks_get_the_same_threads_and_yield_where_they_fill_the_cores() -> None:
    config = DDP.model_copy(update={"threads": 3})
    threads = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3"}
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "HOROVOD_GLOO_IFACE": "lo"}
    name = "OMPI_MCA_mpi_yield_when_idle"
    assert environment(config, HERE, 6, {}) == {**threads, name: "1", **loopback}
    assert environment(config, HERE, 7, {}) == {**threads, **loopback}
    assert name not in environment(DDP, HERE, 2, {name: "0"}), "the user's own choice stays"


@pytest.mark.parametrize("launch", [HERE, APART])
def test_both_frameworks_use_the_interface_that_is_named_for_one(launch: Launch) -> None:
    """horovodrun names Horovod's alone: DDP on another wire would be another measurement."""
    one = environment(DDP, launch, 8, {"HOROVOD_GLOO_IFACE": "eth1"})
    other = environment(DDP, launch, 8, {"GLOO_SOCKET_IFNAME": "ib0"})
    assert one["GLOO_SOCKET_IFNAME"] == "eth1"
    assert other["HOROVOD_GLOO_IFACE"] == "ib0"
    assert "GLOO_SOCKET_IFNAME" not in environment(DDP, APART, 8, {}), "left alone between nodes"


def test_nothing_changes_one_framework_unseen() -> None:
    for name in ("HOROVOD_AUTOTUNE", "HOROVOD_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG"):
        wrong = f"{name}='0' would change one framework unseen; unset it"
        with pytest.raises(UsageError, match=wrong):
            require_unmodified({name: "0"})
    build = {"HOROVOD_CXX": "g++", "HOROVOD_WITH_MPI": "1", "PATH": ""}
    require_unmodified({"HOROVOD_GLOO_IFACE": "ib0", "HOROVOD_RANK": "0", **build})


def test_a_rank_bound_to_one_core_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert "--bind-to none" in str(advice(DDP, HERE, 1))
    assert advice(DDP, HERE, 2) is None
    alone = Launch("none", 0, 1, 0, 1, "alone")
    assert advice(DDP, alone, 1) is None
    crowded = advice(DDP.model_copy(update={"threads": 64}), alone, 2)
    assert "1 rank(s) of 64 thread(s) share 2 core(s)" in str(crowded)
