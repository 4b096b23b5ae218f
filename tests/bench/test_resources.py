"""Resources: stated for every rank, the same for every backend."""

from __future__ import annotations

import pytest

from bench.config import RunConfig, UsageError
from bench.launch.world import Launch, advice, environment, require_unmodified

HERE = Launch("mpirun", 0, 2, 0, 2, "k")
APART = Launch("srun", 0, 2, 0, 1, "k")
DDP = RunConfig(backend="ddp", world_size=2, batch_per_rank=1)


@pytest.mark.parametrize("backend", ["ddp", "horovod"])
def test_all_backends_get_the_same(backend: str) -> None:
    config = RunConfig(backend=backend, world_size=2, batch_per_rank=1, threads=3)
    assert environment(config, HERE, 4, {}) == {
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HOROVOD_GLOO_IFACE": "lo",
    }


def test_yield_only_where_ranks_fill_the_cores() -> None:
    name = "OMPI_MCA_mpi_yield_when_idle"
    assert name in environment(DDP, HERE, 2, {})
    assert name not in environment(DDP, HERE, 3, {})
    assert name not in environment(DDP, HERE, 2, {name: "0"}), "the user's own choice stays"


def test_interfaces_are_left_alone_between_nodes() -> None:
    assert "GLOO_SOCKET_IFNAME" not in environment(DDP, APART, 8, {})
    assert "GLOO_SOCKET_IFNAME" not in environment(DDP, HERE, 8, {"GLOO_SOCKET_IFNAME": "ib0"})


@pytest.mark.parametrize("launch", [HERE, APART])
def test_both_frameworks_use_the_interface_that_is_named_for_one(launch: Launch) -> None:
    """horovodrun names Horovod's alone: DDP on another wire would be another measurement."""
    one = environment(DDP, launch, 8, {"HOROVOD_GLOO_IFACE": "eth1"})
    other = environment(DDP, launch, 8, {"GLOO_SOCKET_IFNAME": "ib0"})
    assert one["GLOO_SOCKET_IFNAME"] == "eth1"
    assert other["HOROVOD_GLOO_IFACE"] == "ib0"


HOROVODS = [f"HOROVOD_{n}" for n in ("CACHE_CAPACITY", "AUTOTUNE", "LOG_LEVEL", "THREAD_AFFINITY")]


@pytest.mark.parametrize("name", [*HOROVODS, "TORCH_DISTRIBUTED_DEBUG"])
def test_nothing_changes_one_framework_unseen(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}='0' would change one framework unseen; unset it"):
        require_unmodified({name: "0"})


def test_places_and_build_options_are_no_tuning() -> None:
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
