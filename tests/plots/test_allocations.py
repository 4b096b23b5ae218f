"""Runs are compared inside one allocation only, in studies with jobs and without."""

from pathlib import Path
from typing import Any

from bench.study.frames import load
from plots.analyse.study import Analysis, analyse
from tests.plots import logs

SECONDS = {"single": 0.1, "ddp/mpi": 0.11, "horovod/mpi": 0.12}
DDP, HOROVOD, SINGLE = "ddp/mpi", "horovod/mpi", "single"


def analysed(folder: Path) -> Analysis:
    return analyse(load(folder))


def place(job: str, world_size: int) -> dict[str, Any]:
    """Make provenance of a run of a job under Slurm, a node for each rank."""
    ranks = logs.host(world_size)["ranks"]
    named = [{**rank, "hostname": f"r{n}.cluster"} for n, rank in enumerate(ranks)]
    return logs.host(world_size, ranks=named, job={"SLURM_JOB_ID": job})


def in_job(folder: Path, job: str, launch: int, *cells: str) -> None:
    """Write a job's runs of one launch: `single` on one rank, the others on two."""
    for cell in cells:
        run = logs.config(cell, 1 if cell == SINGLE else 2, 16, launch, seed=launch)
        path = folder / "runs" / f"{job}-{cell.replace('/', '-')}.jsonl"
        seconds = SECONDS[cell] * (1 + 0.01 * launch)
        logs.write(path, run, seconds, provenance=place(job, run.world_size))


def test_a_pair_of_two_jobs_is_no_pair_though_launch_and_nodes_agree(tmp_path: Path) -> None:
    in_job(tmp_path, "7", 0, DDP)
    in_job(tmp_path, "8", 0, HOROVOD)
    a = analysed(tmp_path)
    assert a.comparisons == []
    (found,) = [n for n in a.not_compared if n.pair.startswith("ddp/mpi")]
    assert found.pair == "ddp/mpi, 2 ranks, 16 images per rank against horovod/mpi, launch 0"
    assert found.reason == "not in one allocation: job 7 against job 8"


def test_the_part_of_a_resumed_launch_that_is_whole_counts(tmp_path: Path) -> None:
    """Job 7 had launch 0, job 8 half of launch 1, job 9 the whole; DDP's log of job 8 stayed."""
    in_job(tmp_path, "7", 0, DDP, HOROVOD)
    in_job(tmp_path, "8", 1, DDP)
    in_job(tmp_path, "9", 1, DDP, HOROVOD)
    a = analysed(tmp_path)
    assert [c.paired.n for c in a.comparisons] == [2]
    assert not [n for n in a.not_compared if n.pair.startswith("ddp/mpi")]
    assert a.launches == 2


def test_one_launch_that_is_shared_does_not_stand_for_all(tmp_path: Path) -> None:
    """Eight launches in jobs of their own, of which one was done again in one job."""
    for launch in range(8):
        in_job(tmp_path, f"{launch}1", launch, SINGLE)
        in_job(tmp_path, f"{launch}2", launch, DDP)
    (apart,) = analysed(tmp_path).efficiency
    assert (apart.paired, apart.efficiency.n) == (False, 8)
    assert apart.flags == ("Welch's interval: no shared launches",)
    in_job(tmp_path, "99", 3, SINGLE, DDP)
    a = analysed(tmp_path)
    (found,) = a.efficiency
    assert (found.paired, found.efficiency.n) == (False, 9)
    assert found.efficiency.low is not None
    assert found.flags == ("Welch's interval: 1 shared launch",)
    assert not [n for n in a.not_compared if "against single" in n.pair]
    for launch in (4, 5, 6, 7):  # five of the point's thirteen
        in_job(tmp_path, f"99{launch}", launch, SINGLE, DDP)
    assert [s.flags for s in analysed(tmp_path).efficiency] == [
        ("Welch's interval: 5 shared launches",)
    ]


def test_a_baseline_of_the_same_job_is_paired_and_other_launches_are_named(tmp_path: Path) -> None:
    for launch in range(2):
        in_job(tmp_path, f"{launch}1", launch, SINGLE, DDP)
    in_job(tmp_path, "31", 2, SINGLE)
    in_job(tmp_path, "32", 2, DDP)
    a = analysed(tmp_path)
    (found,) = a.efficiency
    assert (found.paired, found.efficiency.n) == (True, 2)
    assert [n.reason for n in a.not_compared if ", launch 2" in n.pair] == [
        "not in one allocation: job 31 against job 32"
    ]


def test_parameters_that_differ_are_named_by_launch_and_job(tmp_path: Path) -> None:
    for cell, sha in (("ddp/mpi", logs.digest("a")), ("horovod/mpi", logs.digest("b"))):
        end, of_job = {"parameters_sha256": sha}, place("7", 1)
        by_hand, run = logs.config(cell, 1, launch=None), logs.config(cell, 1, launch=3)
        here = {**of_job, "job": {}}
        logs.write(tmp_path / f"by-hand-{cell[:3]}.jsonl", by_hand, 0.1, provenance=here, end=end)
        logs.write(tmp_path / f"{cell[:3]}.jsonl", run, 0.1, provenance=of_job, end=end)
    (alone, two) = analysed(tmp_path).digests
    places = sorted(m.partition(":")[0] for m in alone.mismatches)
    assert places == ["launch 3 (job 7)", "no launch recorded"]
    assert (alone.groups, alone.runs, two.groups, two.mismatches) == (2, 4, 0, ())
