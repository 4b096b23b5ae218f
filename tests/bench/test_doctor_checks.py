"""The doctor's checks as functions of values: faults, how bad they are, and the cures named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError
from bench.launch.world import Launch
from bench.tools.doctor import exchange, machine, places, process, ranks
from bench.tools.doctor.findings import Finding, failure, merge, ok
from bench.tools.doctor.mailbox import Meeting
from bench.tools.doctor.options import OneRank, parse
from bench.tools.setup.origin import CONDA
from tests.plots import logs

HERE = ["lo", "eth0", "ib0"]


def levels(found: Iterable[Finding]) -> list[str]:
    return [finding.level for finding in found]


def test_what_all_ranks_find_is_said_once() -> None:
    dead = failure("interface", "none", "unset it")
    assert merge({0: [ok("a", "x")], 1: [ok("a", "y")]}) == [ok("a", "x")]
    assert merge({0: [dead], 1: [dead]}) == [dead]
    some = merge({0: [ok("interface", "fine")], 1: [dead], 2: [dead], 3: [dead], 5: [dead]})
    assert some == [failure("interface", "on rank 1-3, 5: none", "unset it")]
    assert merge({0: [ok("b", ""), ok("a", "")], 1: [dead]})[-1].text == "on rank 1: none"


@pytest.mark.parametrize(
    ("source", "env", "mpi", "level"),
    [
        ("mpirun", {}, "Open MPI v5.0.11", "ok"),
        ("mpirun", {}, "MPICH Version: 4.0.2", "failure"),
        ("hydra", {}, "MPICH Version: 4.0.2", "ok"),
        ("hydra", {}, "Intel(R) MPI Library 2021.11", "ok"),
        ("hydra", {}, "Open MPI v4.1.4", "failure"),
        ("mpirun_rsh", {}, "MVAPICH2 Version : 2.3.7", "ok"),
        ("pals", {}, "CRAY MPICH version 8.1", "ok"),
        ("srun", {}, "Open MPI v5.0.11", "failure"),
        ("srun", {"PMIX_NAMESPACE": "slurm.pmix.42.0"}, "Open MPI v5.0.11", "ok"),
        ("srun", {}, "MVAPICH2 Version : 2.3.7", "ok"),
        ("torchrun", {}, "Open MPI v5.0.11", "ok"),
        ("horovodrun", {}, "Open MPI v5.0.11", "ok"),
    ],
)
def test_the_library_against_the_launcher(
    source: str, env: Mapping[str, str], mpi: str, level: str
) -> None:
    assert ranks.library(Launch(source, 0, 2, 0, 2, "k"), mpi, env).level == level


HYDRA = "HYDRA build details:\n    Version:   4.0.2"


@pytest.mark.parametrize(
    ("path", "version", "mpi", "level"),
    [
        ("/bin/mpirun", "mpirun (Open MPI) 4.1.4", "Open MPI v4.1.4", "ok"),
        ("/bin/mpirun", "mpirun (Open MPI) 4.1.4", "Open MPI v5.0.11", "warning"),
        ("/bin/mpirun", "mpirun (Open MPI) 4.1.4", None, "ok"),  # no library: said elsewhere
        ("/bin/mpirun", HYDRA, "Open MPI v5.0.11", "failure"),
        ("/bin/mpirun", HYDRA, "MPICH Version: 4.0.2", "ok"),
        (None, "", "Open MPI v5.0.11", "failure"),
    ],
)
def test_mpirun_against_the_library(
    path: str | None, version: str, mpi: str | None, level: str
) -> None:
    assert ranks.mpirun(path, version, mpi).level == level


def test_what_is_tried() -> None:
    def cells(source: str, ranks: int, gpus: int, asked: list[str] | None = None) -> list[str]:
        return exchange.cells(Launch(source, 0, 8, 0, ranks, "k"), asked, gpus)

    four = ["ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo"]
    assert cells("none", 1, 0) == four
    assert cells("mpirun", 2, 0) == four
    assert cells("torchrun", 2, 0) == four[2:]
    assert cells("srun", 4, 4) == [*four, "ddp/nccl", "horovod/nccl"]
    assert cells("srun", 4, 4, ["ddp/gloo"]) == ["ddp/gloo"]
    assert cells("none", 1, 1) == [*four, "ddp/nccl", "horovod/nccl"], "on one rank: see below"
    assert exchange.ranks_alone("ddp/nccl", 1) == 1
    assert [exchange.ranks_alone("ddp/nccl", gpus) for gpus in (2, 8)] == [2, 2]
    assert exchange.ranks_alone("ddp/mpi", 1) == 2
    last = ["ddp/mpi", "horovod/mpi"]
    assert exchange.groups(four) == [["ddp/gloo"], ["horovod/gloo"], last], "MPI in one process"
    assert exchange.groups([]) == []


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ["ok"]),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, ["ok"]),
        ({"GLOO_SOCKET_IFNAME": "ib"}, ["failure"]),
        ({"HOROVOD_GLOO_IFACE": "ib0,lo"}, ["ok"]),
        ({"NCCL_SOCKET_IFNAME": "ib"}, ["ok"]),
        ({"NCCL_SOCKET_IFNAME": "=ib"}, ["failure"]),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, ["ok"]),
        ({"NCCL_SOCKET_IFNAME": "hsn"}, ["failure"]),
        ({"GLOO_SOCKET_IFNAME": "ib0", "HOROVOD_GLOO_IFACE": "eth0"}, ["failure"]),
    ],
)
def test_interfaces(env: Mapping[str, str], expected: list[str]) -> None:
    assert levels(machine.interfaces(env, HERE, several_hosts=True)) == expected


@pytest.mark.parametrize("name", ["GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"])
def test_the_loopback_does_not_reach_another_host(name: str) -> None:
    assert levels(machine.interfaces({name: "lo"}, HERE, several_hosts=False)) == ["ok"]
    (found,) = machine.interfaces({name: "lo"}, HERE, several_hosts=True)
    assert found.level == "failure"
    assert found.cure == "unset it, or name one of eth0, ib0"


def test_a_host_that_does_not_know_its_name() -> None:
    found = machine.own_name("no-such-host.invalid")
    assert found.level == "failure"
    assert "/etc/hosts" in found.cure


def test_libraries() -> None:
    good = {"torch": "2.13", "torchvision": "0.28", "mpi4py": "4.1", "horovod": "0.28.1"}
    good["mpi"] = "Open MPI v5.0.11"
    both = ["/a/libmpi.so.40", "/b/libmpi.so.40"]
    assert levels(machine.libraries({**good, "errors": {}, "mpi_files": both[:1]})) == ["ok"]
    two = list(machine.libraries({**good, "errors": {}, "mpi_files": both}))
    assert levels(two) == ["ok", "failure"]
    assert "/b/libmpi.so.40" in two[1].text
    assert not list(machine.torchvision_pair(good))
    unequal = {**good, "torch": "2.13+cpu", "torchvision": "0.28+cu130"}
    (other,) = machine.torchvision_pair({**unequal, "torchvision_alone": "no nms"})
    assert (other.name, other.level) == ("torchvision", "warning")
    assert "torch 2.13+cpu and torchvision 0.28+cu130 are no pair" in other.text
    assert other.cure.endswith("TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu")
    absent = machine.torchvision_pair({"torchvision_alone": "no nms", "errors": {}})
    assert not list(absent), "that it is absent is said elsewhere"
    missing = machine.libraries({**good, "errors": {"mpi4py": "no libmpi"}, "mpi_files": []})
    assert [(f.name, f.level) for f in missing] == [("mpi4py", "failure")]


def test_horovods_build() -> None:
    built = {"mpi": True, "gloo": True, "nccl": False}
    facts = {"torch": "2.13.0+cpu", "errors": {}, "horovod_built": built}
    (good,) = machine.horovod_build({"pytorch": "2.13.0+cpu"}, facts | {"horovod_origin": "mine"})
    expected = ("ok", "for torch 2.13.0+cpu, with MPI and Gloo, without NCCL: mine")
    assert (good.level, good.text) == expected
    assert levels(machine.horovod_build({"pytorch": "2.13.0+cu130"}, facts)) == ["failure"]
    assert levels(machine.horovod_build({}, facts)) == ["failure"]
    assert levels(machine.horovod_build(None, facts)) == ["warning"]
    no_mpi = facts | {"horovod_built": built | {"mpi": False}}
    assert "without mpi" in next(machine.horovod_build({"pytorch": "2.13.0+cpu"}, no_mpi)).text


def test_conda_forges_horovod_has_no_gloo_and_its_minor_version_of_torch() -> None:
    built = {"mpi": True, "gloo": False, "nccl": True}
    facts = {"torch": "2.12.1", "errors": {}, "horovod_built": built}
    facts["horovod_origin"] = f"{CONDA} build 21 (cuda_mpi_openmpi_h1_21)"
    (other,) = machine.horovod_build({"pytorch": "2.12.0"}, facts)
    assert (other.level, other.cure[:28]) == ("warning", "leave horovod/gloo out of st")
    assert "build 21 (cuda_mpi_openmpi_h1_21) and was built without gloo" in other.text
    assert levels(machine.horovod_build({"pytorch": "2.13.0"}, facts)) == ["failure"]
    no_mpi = facts | {"horovod_built": built | {"mpi": False}}
    assert levels(machine.horovod_build({"pytorch": "2.12.0"}, no_mpi)) == ["failure"]


def test_both_frameworks_call_one_nccl() -> None:
    one = {"path": "/env/libnccl.so.2", "version": "2.29.3", "sha256": "0123456789abcdef"}
    facts: dict[str, Any] = {"devices": ["GPU-a"], "horovod_built": {"nccl": True}}
    (good,) = machine.devices(facts | {"nccl": {"ddp": one, "horovod": one}})
    called = "NCCL 2.29.3 of /env/libnccl.so.2 (SHA-256 0123456789ab)"
    assert (good.level, good.text) == ("ok", f"1 GPU(s), in both frameworks {called}")
    own = {**one, "path": "/env/mpi_lib_v2.so", "sha256": "fe"}
    (two,) = machine.devices(facts | {"nccl": {"ddp": one, "horovod": own}})
    assert two.level == "failure", "the same version, in another file"
    assert "Horovod NCCL 2.29.3 of /env/mpi_lib_v2.so (SHA-256 fe): two exchanges" in two.text
    (unknown,) = machine.devices(facts | {"nccl": {"error": "two are loaded", "cure": "unload"}})
    assert (unknown.level, unknown.text, unknown.cure) == ("failure", "two are loaded", "unload")
    assert levels(machine.devices(facts | {"horovod_built": {"nccl": False}})) == ["warning"]
    assert not list(machine.devices({"devices": []}))


def test_a_try_names_the_nccl_and_what_it_took() -> None:
    versions = {"nccl": "2.29.3", "nccl library sha256": "0123456789abcdef"}
    answer = {"ms": 1.0, "bytes": 2**20, "versions": {**versions, "nccl transport": "P2P/CUMEM"}}
    text = exchange.judge("ddp/nccl", {0: answer, 1: answer}, 2).text
    taken = "nccl library sha256 0123456789ab, nccl transport P2P/CUMEM"
    assert text.endswith(f"with nccl 2.29.3, {taken}")


def test_how_much_faster_more_ranks_can_be() -> None:
    """A step of 30 ms: 4 ranks reach 4 x 30 / 40 of one, or 4, with an exchange of 10 ms."""
    alone = OneRank(0.030, 102_000_000, "cuda")

    def bound(exchange_s: float, cell: str = "ddp/nccl", size: int = 4) -> list[Finding]:
        return [*exchange.bound(cell, {0: {"exchange_s": exchange_s}}, size, alone)]

    (fast,) = bound(0.010)
    assert (fast.name, fast.level) == ("speed-up", "ok")
    assert fast.text.startswith("ddp/nccl: 4 ranks process at most 3.00 times the images of one")
    assert fast.text.endswith(
        "4.00 times if all is: a step takes 30 ms, an all-reduce of its 102 MB of gradients 10 ms"
    )
    (slow,) = bound(0.150)
    assert slow.level == "warning"
    assert "at most 0.67 times" in slow.text
    assert "0.80 times if all is" in slow.text
    assert bound(0.010, "ddp/mpi") == [], "the step was a GPU's, the exchange is a CPU's"
    assert bound(0.010, size=1) == []
    assert [*exchange.bound("ddp/nccl", {0: {"error": "no"}}, 4, alone)] == []
    assert [*exchange.bound("ddp/nccl", {0: {"exchange_s": 1.0}}, 4, None)] == []


def test_only_a_training_of_one_rank_tells_a_step(tmp_path: Path) -> None:
    log = logs.write(tmp_path / "one.jsonl", logs.config("single", 1), 0.5)
    logs.edit(log, '"workload": {}', '"workload": {"gradient_bytes": 4000}')
    alone = parse(["--one-rank", str(log)]).alone
    assert alone is not None
    assert (alone.gradient_bytes, alone.device) == (4000, "cpu")
    assert alone.step_s == pytest.approx(0.5)
    two = logs.write(tmp_path / "two.jsonl", logs.config("ddp/mpi", 2), 0.5)
    logs.edit(two, '"workload": {}', '"workload": {"gradient_bytes": 4000}')
    torn = tmp_path / "torn.jsonl"
    torn.write_text(log.read_text()[:900])
    for wrong in (two, torn):
        with pytest.raises(UsageError, match="; name a log of python -m bench"):
            parse(["--one-rank", str(wrong)]).alone  # noqa: B018


def test_data(tmp_path: Path) -> None:
    assert machine.data("digits", None).level == "ok"
    assert machine.data("imagefolder", tmp_path).level == "failure", "a folder without classes"
    (tmp_path / "cats").mkdir()
    assert machine.data("imagefolder", tmp_path).level == "ok"
    assert machine.data("svhn", tmp_path).level == "warning"
    (tmp_path / "train_32x32.mat").write_text("")
    assert machine.data("svhn", tmp_path).level == "ok"


def rank(number: int, size: int = 4, **facts: Any) -> dict[str, Any]:
    """Rank `number` of a sound launch: two ranks a host, four cores each."""
    local = number % 2
    sound: dict[str, Any] = {"rank": number, "size": size, "local_rank": local, "local_size": 2}
    sound |= {"hostname": f"n{number // 2}", "cpu": "x", "cpus_on_node": 8, "devices": []}
    sound |= {"numa_nodes": [local], "device_nodes": [], "visible_devices": {}}
    sound |= {"versions": {"torch": "2.13"}, "default_threads": {"OMP_NUM_THREADS": None}}
    return sound | {"affinity": list(range(4 * local, 4 * local + 4))} | facts


def test_ranks_that_agree() -> None:
    four = [rank(number) for number in range(4)]
    (found,) = ranks.compare(four)
    assert found == ok("ranks", "4 on 2 host(s), alike in versions, threads and CPU")
    assert levels(ranks.cores(four, 3)) == ["ok"]
    assert ranks.devices(four) == []


@pytest.mark.parametrize(
    ("facts", "name", "level", "words"),
    [
        ({"size": 5}, "ranks", "failure", "[4, 5]"),
        ({"local_rank": 0}, "ranks", "failure", "share a place"),
        ({"hostname": "n0"}, "ranks", "failure", "share a place"),
        ({"hostname": "n9"}, "ranks", "failure", "n1, n9"),
        ({"versions": {"torch": "2.12"}}, "versions", "failure", "rank 3 has {'torch': '2.12'}"),
        ({"default_threads": {"MKL": "2"}}, "threads", "failure", "'MKL': '2'}"),
        ({"cpu": "y"}, "CPU", "warning", "rank 3"),
    ],
)
def test_ranks_that_differ(facts: dict[str, Any], name: str, level: str, words: str) -> None:
    (found,) = ranks.compare([*(rank(number) for number in range(3)), rank(3, **facts)])
    assert (found.name, found.level) == (name, level)
    assert words in found.text


def test_cores() -> None:
    def found(affinity: list[list[int]], threads: int) -> str:
        two = [rank(number, 2, affinity=cores) for number, cores in enumerate(affinity)]
        return ranks.cores(two, threads)[0].level

    assert found([[0], [0]], 1) == "failure", "two ranks on one core"
    assert found([[0, 1], [0, 1]], 1) == "warning", "no spare core"
    assert found([[0], [1]], 1) == "warning", "each bound to one core of eight"
    assert found([[0, 1], [2, 3]], 1) == "ok"
    assert found([[0, 1], [2, 3]], 3) == "failure"


def test_gpus() -> None:
    def found(*devices: list[str]) -> list[str]:
        two = [rank(number, 2, devices=seen) for number, seen in enumerate(devices)]
        return levels(ranks.devices(two))

    assert found(["a", "b"], ["a", "b"]) == ["ok"]
    assert found(["a"], ["b"]) == ["ok"], "each sees its own"
    assert found(["a"], ["a"]) == ["failure"], "both see the same"
    assert found([], ["a", "b"]) == ["failure"]


def test_places_of_ranks_that_are_alike_stand_together() -> None:
    four = [rank(number) for number in range(4)]
    text = "rank 0, 2: cores 0-3 (NUMA node 0); rank 1, 3: cores 4-7 (NUMA node 1)"
    assert places.find(four, 3) == [ok("places", text)]
    seen = {"devices": ["a", "b"], "device_nodes": [0, None], "numa_nodes": []}
    seen["visible_devices"] = {"CUDA_VISIBLE_DEVICES": "2,3"}
    (first, second) = (rank(number, 2, affinity=[0, 1, 2, 3], **seen) for number in range(2))
    (one,) = places.find([first, second], 1)
    assert one.text.split("; ")[0] == (
        "rank 0: cores 0-3 (NUMA node not known), GPU 0 of 2 (NUMA node 0), "
        "CUDA_VISIBLE_DEVICES=2,3"
    )
    assert "GPU 1 of 2 (NUMA node not known)" in one.text


def test_cores_far_from_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "bus/pci/devices/0000:1b:00.0").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:1b:00.0/numa_node").write_text("1\n")
    facts = {"devices": ["a", "b"], "buses": ["0000:1b:00.0", None]}
    seen = places.devices(facts, {"HIP_VISIBLE_DEVICES": "0,1"}, tmp_path)
    assert seen["device_nodes"] == [1, None]
    assert seen["visible_devices"] == {"HIP_VISIBLE_DEVICES": "0,1"}
    assert places.devices({}, {}, tmp_path)["device_nodes"] == []
    crossed = [rank(n, 2, devices=["a", "b"], device_nodes=[1, 0]) for n in range(2)]
    (_, far) = places.find(crossed, 1)
    assert (far.name, far.level) == ("places", "warning")
    assert far.text.startswith("rank 0-1: cores (NUMA node 0) and GPU (NUMA node 1) are apart")
    either = [
        rank(n, 2, devices=["a", "b"], device_nodes=[1, 0], numa_nodes=[0, 1]) for n in (0, 1)
    ]
    assert levels(places.find(either, 1)) == ["ok"], "cores of both nodes"


def test_bound_ranks_that_share_cores_of_a_larger_node() -> None:
    def shared(*affinity: list[int], cpus_on_node: int = 8) -> list[str]:
        two = [rank(n, 2, affinity=a, cpus_on_node=cpus_on_node) for n, a in enumerate(affinity)]
        return levels(places.find(two, 1))

    assert shared([0, 1, 2], [2, 3, 4]) == ["ok", "warning"]
    assert shared([0, 1], [0, 1]) == ["ok", "warning"], "too few for both"
    assert shared([0, 1], [0, 1], cpus_on_node=2) == ["ok"], "the machine has no more"
    assert shared([*range(8)], [*range(8)]) == ["ok"], "not bound"
    assert shared([*range(4)], [*range(4)]) == ["ok"], "a job's part of a node"
    apart = [rank(n, 2, hostname=f"n{n}", affinity=[0, 1]) for n in range(2)]
    assert levels(places.find(apart, 1)) == ["ok"], "of two hosts"
    (_, found) = places.find([rank(n, 2, affinity=[n, n + 1]) for n in range(2)], 1)
    assert found.text == "ranks 0 and 1 share core(s) 1 of the 8 of n0"


def test_absent_ranks_and_silent_hosts() -> None:
    there = {0: rank(0), 1: rank(1), 3: rank(3, hostname="n1.example.org")}
    assert ranks.absent({**there, 2: rank(2)}, 4, 9, {}) == []
    assert ranks.absent(there, 4, 9, {})[0].text == "rank 2 of 4 did not report within 9 s"
    (found,) = ranks.absent({0: rank(0), 1: rank(1)}, 4, 9, {"SLURM_STEP_NODELIST": "n[0-1]"})
    absent = "rank 2, 3 of 4 did not report within 9 s"
    assert found.text == f"{absent}; the step has n[0-1], heard were n0"


def test_a_meeting_survives_what_an_earlier_one_left(tmp_path: Path) -> None:
    first, second = (Launch("hydra", number, 2, number, 2, "unnamed") for number in range(2))
    old = Meeting(tmp_path, first)
    old.tell("plan", "old")
    late = Meeting(tmp_path, second)
    late.tell("facts", {"rank": 1})
    assert late.hear("plan", [0], 1) == {0: "old"}
    assert late.hear("plan", [0], 0, lambda plan: plan == "new") == {}
    new = Meeting(tmp_path, first)
    assert new.hear("facts", [1], 0) == {}, "what was said to the old one does not count"
    assert late.hear("plan", [0], 0) == {}
    assert new.hear("facts", [1], 1) == {1: {"rank": 1}}, "it was said again"
    new.close()
    assert list(tmp_path.iterdir()) == []


def test_answers_of_unbuffered_ranks_on_one_pipe_stay_apart() -> None:
    answers = "from bench.tools.doctor import process\n"
    answers += "for step in range(2000): process.answer({'step': step})"
    two = '"$0" -u -c "$1" & "$0" -u -c "$1" & wait'  # as torchrun starts its ranks
    found, problem = process.run(["bash", "-c", two, sys.executable, answers], os.environ, 60)
    assert problem is None
    assert sorted(answer["step"] for answer in found) == sorted([*range(2000)] * 2)
