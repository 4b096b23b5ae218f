"""The words that start ranks, for each launcher."""

import os

import pytest

from bench.launch import launcher

HOSTS = ("n1", "n2", "n3")


def test_srun_names_the_first_hosts_that_the_ranks_fill() -> None:
    words = launcher.command(
        "srun", 5, args=["--mpi=pmix"], hosts=HOSTS, ranks_per_node=3, cpus_per_rank=4
    )
    places = ["--nodes=2", "--nodelist=n1,n2", "--ntasks=5", "--ntasks-per-node=3"]
    assert words == ["srun", *places, "--cpus-per-task=4", "--mpi=pmix"]
    alone = launcher.command("srun", 1, hosts=HOSTS[2:], ranks_per_node=3)
    assert alone == ["srun", "--nodes=1", "--nodelist=n3", "--ntasks=1", "--ntasks-per-node=1"]


def test_ibrun_counts_its_place_in_ranks() -> None:
    assert launcher.command("ibrun", 2) == ["ibrun", "-n", "2", "-o", "0"]


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
