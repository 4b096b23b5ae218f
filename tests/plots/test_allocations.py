"""Runs are compared inside one allocation only: resumed and requeued blocks, baselines of other jobs, studies without jobs."""

from pathlib import Path

from plots.analysis import Analysis, analyse
from plots.load import load
from tests.plots import logs

NODES = {"r1": 1.0, "r2": 1.0}
DDP, HOROVOD = {"ddp/mpi": (2, 1.1)}, {"horovod/mpi": (2, 1.2)}


def analysed(folder: Path) -> Analysis:
    return analyse(load(folder))


def test_a_pair_of_two_jobs_is_no_pair_though_block_and_nodes_agree(tmp_path: Path) -> None:
    logs.in_job(tmp_path, logs.Job("7", 0, NODES), DDP)
    logs.in_job(tmp_path, logs.Job("8", 0, NODES), HOROVOD)
    a = analysed(tmp_path)
    assert a.comparisons == []
    (found,) = [n for n in a.not_compared if n.what.startswith("ddp/mpi")]
    assert found.what == "ddp/mpi (shipped), 2 ranks, 16 images per rank against horovod/mpi, block 0"
    assert found.reason == "not in one allocation: job 7 against job 8"


def test_a_requeued_job_is_another_allocation(tmp_path: Path) -> None:
    logs.in_job(tmp_path, logs.Job("7", 0, NODES), DDP)
    logs.in_job(tmp_path, logs.Job("7", 0, NODES, restart=1), HOROVOD)
    assert [n.reason for n in analysed(tmp_path).not_compared if n.what.startswith("ddp/mpi")] == [
        "not in one allocation: job 7 against job 7, restart 1"
    ]


def test_the_part_of_a_resumed_block_that_is_whole_counts(tmp_path: Path) -> None:
    """Block 0 was whole in job 7, block 1 lost Horovod in job 8; job 9 did both again, and DDP's log of job 8 stayed."""
    logs.in_job(tmp_path, logs.Job("7", 0, NODES), DDP | HOROVOD)
    logs.in_job(tmp_path, logs.Job("8", 1, NODES), DDP)
    logs.in_job(tmp_path, logs.Job("9", 1, NODES), DDP | HOROVOD)
    a = analysed(tmp_path)
    assert [c.paired.n for c in a.comparisons] == [2]
    assert not [n for n in a.not_compared if n.what.startswith("ddp/mpi")]
    assert a.blocks == 2


def test_a_baseline_of_other_jobs_is_compared_unpaired(tmp_path: Path) -> None:
    for block in range(3):
        logs.in_job(tmp_path, logs.Job(f"{block}1", block, {"r1": 1.0}), {"single": (1, 1.0 + 0.1 * block)})
        logs.in_job(tmp_path, logs.Job(f"{block}2", block, NODES), DDP)
    (found,) = analysed(tmp_path).efficiency
    assert (found.paired, found.efficiency.n) == (False, 3)
    # unpaired, the baseline's spread over its jobs is in the interval; paired it would have been the same here
    assert found.efficiency.low is not None
    assert found.efficiency.high is not None
    assert found.efficiency.low < 1 / 1.1 < found.efficiency.high


def test_a_baseline_of_the_same_job_is_paired_and_other_blocks_are_named(tmp_path: Path) -> None:
    for block in range(2):
        logs.in_job(tmp_path, logs.Job(f"{block}1", block, NODES), {"single": (1, 1.0)} | DDP)
    logs.in_job(tmp_path, logs.Job("31", 2, NODES), {"single": (1, 1.0)})
    logs.in_job(tmp_path, logs.Job("32", 2, NODES), DDP)
    a = analysed(tmp_path)
    (found,) = a.efficiency
    assert (found.paired, found.efficiency.n) == (True, 2)
    assert [n.reason for n in a.not_compared if ", block 2" in n.what] == ["not in one allocation: job 31 against job 32"]


def test_equal_parameters_are_looked_for_inside_an_allocation(tmp_path: Path) -> None:
    logs.in_job(tmp_path, logs.Job("7", 0, NODES), DDP)
    logs.in_job(tmp_path, logs.Job("8", 0, NODES), HOROVOD)
    assert [d.groups for d in analysed(tmp_path).digests] == [0, 0]
    logs.in_job(tmp_path, logs.Job("9", 0, NODES), DDP | HOROVOD)
    assert [d.groups for d in analysed(tmp_path).digests] == [0, 1]


def test_without_jobs_a_block_is_one_place_as_long_as_its_hosts_agree(tmp_path: Path) -> None:
    logs.study(tmp_path, blocks=6)
    runs = load(tmp_path).runs
    assert set(runs["allocation"]) == {""}
    assert set(runs["hosts"]) == {("node1",)}
    assert [c.paired.n for c in analysed(tmp_path).comparisons] == [6] * 3
