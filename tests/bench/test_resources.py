"""Resources: stated for every rank, the same for every backend."""

from __future__ import annotations

import pytest

from bench.config import RunConfig, UsageError, make_config
from bench.launch.resources import advice, environment, require_unmodified
from bench.launch.world import Launch

HERE = Launch("mpirun", 0, 2, 0, 2, "k")
APART = Launch("srun", 0, 2, 0, 1, "k")


@pytest.mark.parametrize("backend", ["ddp", "horovod"])
@pytest.mark.parametrize("transport", ["mpi", "gloo"])
def test_all_backends_get_the_same(backend: str, transport: str) -> None:
    config = make_config(
        {
            "backend": backend,
            "transport": transport,
            "world_size": 2,
            "batch_per_rank": 1,
            "threads": 3,
        }
    )
    assert environment(config, HERE, 4, {}) == {
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HOROVOD_GLOO_IFACE": "lo",
    }


def test_yield_only_where_ranks_fill_the_cores() -> None:
    config = RunConfig(backend="ddp", world_size=2, batch_per_rank=1)
    name = "OMPI_MCA_mpi_yield_when_idle"
    assert name in environment(config, HERE, 2, {})
    assert name not in environment(config, HERE, 3, {})
    assert name not in environment(config, HERE, 2, {name: "0"}), "the user's own choice stays"


def test_interfaces_are_left_alone_between_nodes() -> None:
    config = RunConfig(backend="ddp", world_size=2, batch_per_rank=1)
    assert "GLOO_SOCKET_IFNAME" not in environment(config, APART, 8, {})
    assert (
        environment(config, HERE, 8, {"GLOO_SOCKET_IFNAME": "ib0"}).get("GLOO_SOCKET_IFNAME")
        is None
    )


@pytest.mark.parametrize("launch", [HERE, APART])
def test_both_frameworks_use_the_interface_that_is_named_for_one(launch: Launch) -> None:
    """horovodrun names Horovod's alone: DDP on another wire would be another measurement."""
    config = RunConfig(backend="ddp", world_size=2, batch_per_rank=1)
    assert (
        environment(config, launch, 8, {"HOROVOD_GLOO_IFACE": "eth1"})["GLOO_SOCKET_IFNAME"]
        == "eth1"
    )
    assert (
        environment(config, launch, 8, {"GLOO_SOCKET_IFNAME": "ib0,ib1"})["HOROVOD_GLOO_IFACE"]
        == "ib0"
    )


@pytest.mark.parametrize(
    "name",
    [
        "HOROVOD_CACHE_CAPACITY",
        "HOROVOD_AUTOTUNE",
        "HOROVOD_LOG_LEVEL",
        "HOROVOD_THREAD_AFFINITY",
        "TORCH_DISTRIBUTED_DEBUG",
    ],
)
def test_nothing_changes_one_framework_unseen(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}='0' would change one framework unseen; unset it"):
        require_unmodified({name: "0"})


def test_places_and_build_options_are_no_tuning() -> None:
    require_unmodified(
        {
            "HOROVOD_GLOO_IFACE": "ib0",
            "HOROVOD_RANK": "0",
            "HOROVOD_CXX": "g++",
            "HOROVOD_WITH_MPI": "1",
            "PATH": "",
        }
    )


def test_a_rank_bound_to_one_core_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    config = RunConfig(backend="ddp", world_size=2, batch_per_rank=1)
    assert "--bind-to none" in str(advice(config, HERE, 1))
    assert advice(config, HERE, 2) is None
    alone = Launch("none", 0, 1, 0, 1, "alone")
    assert advice(config, alone, 1) is None
    assert "1 rank(s) of 64 thread(s) share 2 core(s)" in str(
        advice(config.model_copy(update={"threads": 64}), alone, 2)
    )
