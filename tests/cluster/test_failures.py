"""What goes wrong in a run under srun: it ends, its log says how, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import Run
from tests.bench.ranks import thorough
from tests.cluster import config, daemons, jobs, node, steps
from tests.cluster.steps import EACH_CELL, ENDLESS, LOST, PLUG_IN, Step, bench, cell

pytestmark = pytest.mark.cluster


def long_run(log: Path, backend: str, transport: str) -> Step:
    return Step(
        log, ["-N2", "-n2", f"--mpi={PLUG_IN[transport]}"], [*ENDLESS, *cell(backend, transport, 2)]
    )


def signal_rank(result: Run, rank: int, signal: str) -> None:
    place = result.host["ranks"][rank]
    done = steps.run([*node.inside(place["hostname"]), "kill", f"-{signal}", str(place["pid"])])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("backend", "transport"), EACH_CELL)
def test_a_killed_rank(tmp_path: Path, backend: str, transport: str) -> None:
    step = long_run(tmp_path / "run.jsonl", backend, transport)
    signal_rank(step.reach_windows(), 1, "KILL")
    result = step.end(40)
    assert result.state == "failed", result.problem
    assert result.exit["code"] != 0
    assert not result.exit["timed_out"], "the other rank noticed, or srun ended it"


def test_rank_0_killed(tmp_path: Path) -> None:
    """Nobody is left to write an end: the launcher's view tells."""
    step = long_run(tmp_path / "run.jsonl", "ddp", "gloo")
    signal_rank(step.reach_windows(), 0, "KILL")
    result = step.end(40)
    assert result.state == "failed", result.problem


@pytest.mark.parametrize(("backend", "transport"), [("ddp", "gloo"), ("horovod", "mpi")])
def test_a_hung_rank(tmp_path: Path, backend: str, transport: str) -> None:
    step = long_run(tmp_path / "run.jsonl", backend, transport)
    signal_rank(step.reach_windows(), 1, "STOP")
    result = step.end(5)
    assert result.state == "timed out", result.problem


@pytest.mark.parametrize(("backend", "transport"), [thorough("ddp", "mpi"), ("horovod", "gloo")])
def test_a_cancelled_job(tmp_path: Path, backend: str, transport: str) -> None:
    srun = ["srun", "-K1", f"--mpi={PLUG_IN[transport]}"]
    job = jobs.submit(
        tmp_path,
        ["-N2", "-n2"],
        [("run.jsonl", [*srun, *bench(*ENDLESS, *cell(backend, transport, 2))])],
    )
    jobs.reach_windows(tmp_path, "run.jsonl")
    steps.run(["scancel", job])
    assert jobs.wait_for(job, ["CANCELLED"]) == "CANCELLED"
    assert not steps.leftovers()
    result = steps.recorded_once(tmp_path / "run.jsonl")
    assert result.state == "interrupted", result.problem
    assert result.end["signal"] == "SIGTERM"


def test_an_interrupted_srun(tmp_path: Path) -> None:
    step = long_run(tmp_path / "run.jsonl", "ddp", "gloo")
    step.reach_windows()
    step.interrupt()
    assert step.end(40, interrupted=True).state == "interrupted"


def test_a_rank_that_takes_too_much_memory(tmp_path: Path) -> None:
    """Two nodes, so that one of them alone is over its limit; Slurm ends the step on all."""
    options = [*ENDLESS, "--model", "tests.cluster.models:greedy", *cell("horovod", "mpi", 2)]
    # the other rank, which loses its peer in MPI, may end the step before Slurm's word is out: with
    # exit code 14, which is Open MPI's MPI_ERR_UNKNOWN
    for attempt in range(3):
        log = tmp_path / f"run-{attempt}.jsonl"
        step = Step(log, ["-N2", "-n2", "--mem=2000M", "--mpi=pmix"], options)
        result = step.end(60)
        if "exceeded memory limit" in step.output:
            break
        assert result.state == "failed", result.problem
    assert "exceeded memory limit" in step.output, step.output
    assert result.state == "out of memory", result.problem


@pytest.mark.parametrize(
    ("backend", "transport"),
    [("ddp", "gloo"), thorough("horovod", "mpi")],
)
def test_a_lost_node_ends_the_job(
    tmp_path: Path, node_to_lose: None, backend: str, transport: str
) -> None:
    srun = ["srun", "-K1", f"--mpi={PLUG_IN[transport]}"]
    command = [*srun, *bench(*ENDLESS, *cell(backend, transport, 2))]
    job = jobs.submit(
        tmp_path, ["-N2", "-n2", "--no-requeue", "-w", f"n1,{LOST}"], [("run.jsonl", command)]
    )
    jobs.reach_windows(tmp_path, "run.jsonl")
    node.lose(LOST)
    assert jobs.wait_for(job, ["NODE_FAIL"]) == "NODE_FAIL"
    assert not steps.leftovers(40)
    result = steps.recorded_once(tmp_path / "run.jsonl")
    assert result.state in ("interrupted", "failed"), result.problem


@pytest.mark.parametrize("how", ["requeued", thorough("preempted")])
def test_a_job_that_starts_over(tmp_path: Path, how: str) -> None:
    """The job keeps its number; the runs do not mix, and each has a log of its own."""
    command = ["srun", "-K1", *bench(*ENDLESS, *cell("horovod", "gloo", 2))]
    job = jobs.submit(
        tmp_path, ["-N2", "-n2", "-w", "n1,n2", "--requeue"], [("@RESTARTS@.jsonl", command)]
    )
    jobs.reach_windows(tmp_path, "0.jsonl")
    if how == "requeued":
        steps.run(["scontrol", "requeue", job])
    else:
        steps.run(["srun", "--partition=urgent", "--exclusive", "-N2", "-w", "n1,n2", "true"])
    jobs.start_again(job)
    jobs.reach_windows(tmp_path, "1.jsonl")
    steps.run(["scancel", job])
    assert not steps.leftovers()
    first, second = (steps.recorded_once(tmp_path / f"{number}.jsonl") for number in (0, 1))
    assert first.state == second.state == "interrupted", (first.problem, second.problem)
    assert second.host["ranks"][0]["key"] == f"{job}.0.1"
    assert first.host["ranks"][0]["key"] == f"{job}.0"


def test_the_cluster_is_whole_again() -> None:
    assert daemons.states() == dict.fromkeys(config.NODES, "idle")
