"""Studies through `python -m slurm` and the rendered job script: cut short in every way, and
finished by resuming.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.ranks import thorough
from tests.cluster import config, daemons, jobs, node, steps
from tests.cluster.steps import LOST
from tests.cluster.studies import Tiny, end_of, site

pytestmark = pytest.mark.cluster

TWO_NODES = ("--nodelist=n1,n2",)


def bring_the_limit(job: str) -> None:
    """Let the job reach its time limit in a minute. Slurm looks twice in each, and warns half a
    minute early: at its next look.
    """
    done = steps.run(["scontrol", "update", f"JobId={job}", "EndTime=now+60"])
    assert done.returncode == 0, done.stderr


def test_a_job_at_its_time_limit_and_the_rest_in_another(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path, requeue="false", ranks_per_node="1"))
    job = tiny.submit()
    tiny.stop_in_second_run()
    bring_the_limit(job)
    assert end_of(job) == "FAILED"  # by its own exit code: it stopped when it was warned
    assert not steps.leftovers()
    assert sorted(tiny.states()) == ["interrupted", "ok"]
    assert "stopped by USR1: 2 runs, 0 failed, 1 left for the next job" in tiny.printed()
    assert "1 ok, 1 interrupted" in tiny.wait(code=1)
    tiny.hold.unlink()
    tiny.resume()
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert tiny.states() == ["ok", "ok"]
    assert len({run.hosts for run in tiny.logs()}) == 1, "a pair is compared on the same nodes only"
    assert sorted(tiny.states(attempts=True)) == ["interrupted", "ok"], (
        "what was done before is kept aside"
    )


@pytest.mark.parametrize("how", ["time limit", thorough("preempted")])
def test_a_job_that_slurm_starts_again_finishes_by_itself(tmp_path: Path, how: str) -> None:
    tiny = Tiny(tmp_path, site(tmp_path, TWO_NODES, ranks_per_node="1"))
    job = tiny.submit()
    tiny.stop_in_second_run()
    if how == "time limit":
        bring_the_limit(job)
    else:
        steps.run(["srun", "--partition=urgent", "--exclusive", "-N2", "-w", "n1,n2", "true"])
    jobs.wait_for(job, ["PENDING"])
    tiny.hold.unlink()
    jobs.start_again(job)
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert tiny.states() == ["ok", "ok"]
    assert sorted(tiny.states(attempts=True)) == ["interrupted", "ok"], "both of a pair go again"
    assert {run.allocation for run in tiny.logs()} == {f"job {job}, restart 1"}
    assert jobs.facts(job)["Restarts"] == "1"


def test_a_cancelled_study_says_where_it_stopped(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path))
    job = tiny.submit()
    tiny.stop_in_second_run()
    assert f"job {job} told to stop" in tiny.do("cancel")
    assert end_of(job) == "FAILED"
    assert not steps.leftovers()
    assert sorted(tiny.states()) == ["interrupted", "ok"]
    assert "ended: stopped by TERM" in tiny.do("status")


@pytest.mark.thorough
def test_two_studies_at_once_on_one_node(tmp_path: Path) -> None:
    """One's look at the launch, and the calibrations and runs of both, two ranks each: no port is
    chosen twice.
    """
    shared = site(tmp_path, ("--nodelist=n1",), exclusive="false")
    both = [
        Tiny(tmp_path, shared, name, ("ddp/gloo", "horovod/gloo"), nodes=1)
        for name in ("one", "other")
    ]
    numbers = [tiny.submit(preflight=tiny.name == "one") for tiny in both]
    for number in numbers:
        jobs.wait_for(number, ["RUNNING"])
    for tiny in both:
        assert f"{tiny.name}: 2 runs: 2 ok" in tiny.wait()
        assert tiny.states() == ["ok"] * 2
        assert {run.hosts for run in tiny.logs()} == {("n1",)}
        assert len(list((tmp_path / "results" / tiny.name / "calibration").glob("*.jsonl"))) == 2


@pytest.mark.thorough
def test_one_job_at_a_time(tmp_path: Path) -> None:
    """Two jobs of a study that have room beside each other, where the site lets none of it."""
    alone = site(tmp_path, requeue="false\none_at_a_time = true")
    tiny = Tiny(tmp_path, alone, nodes="1, 2")
    said = tiny.do("submit", "--no-report", env={"PREFLIGHT": "no"})
    first, second = re.findall(r"submitted as job (\d+)", said)
    assert jobs.facts(second)["Dependency"].startswith(f"afterany:{first}")
    assert "tiny: 4 runs: 4 ok" in tiny.wait()
    assert jobs.facts(second)["StartTime"] >= jobs.facts(first)["EndTime"]


def test_a_node_lost_in_the_middle_of_a_run(tmp_path: Path, node_to_lose: None) -> None:
    """The job goes on with the nodes that are left, as far as they go; the rest is done when the
    node is back.
    """
    tiny = Tiny(
        tmp_path, site(tmp_path, TWO_NODES, requeue="false\nno_kill = true", ranks_per_node="1")
    )
    job = tiny.submit()
    tiny.stop_in_first_run()
    node.lose(LOST)
    tiny.release_after_first_run()
    assert end_of(job) == "FAILED"  # by its own exit code, not by Slurm's NODE_FAIL
    (first,) = tiny.logs()  # the second run was not begun without the node
    assert (first.state, first.exit["timed_out"]) == ("node lost", False), first.problem
    assert f"srun: error: Node failure on {LOST}" in first.exit["said"]
    assert f"host {LOST} is lost: 2 runs, 1 failed, 1 left for the next job" in tiny.printed()
    assert "1 planned, 1 node lost" in tiny.do("status")
    node.start(LOST)
    daemons.wait_idle(config.NODES, 60)
    tiny.resume()
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert {run.hosts for run in tiny.logs()} == {("n1", "n2")}


def test_a_run_out_of_memory(tmp_path: Path) -> None:
    tiny = Tiny(
        tmp_path,
        site(tmp_path, ("--mem=2000M",), ranks_per_node="1"),
        cells=("ddp",),
        model="greedy",
    )
    job = tiny.submit()
    assert end_of(job) == "FAILED"
    (run,) = tiny.logs()
    assert (run.state, run.exit["timed_out"]) == ("out of memory", False), run.problem
    said = run.path.with_suffix(".out").read_text()
    assert "exceeded memory limit (" in said
    assert "being killed" in said
    assert "1 runs, 1 failed, 0 left for the next job" in tiny.printed()


@pytest.mark.parametrize("preflight", [True, False])
def test_a_wrong_world(tmp_path: Path, preflight: bool) -> None:
    """Without the plug-in for PMIx the wheel's Open MPI starts silent worlds of one rank: nothing
    of them is measured.
    """
    tiny = Tiny(tmp_path, site(tmp_path, mpi='"none"', ranks_per_node="1"), cells=("ddp/mpi",))
    job = tiny.submit(preflight=preflight)
    assert end_of(job) == "FAILED"
    if preflight:
        assert tiny.logs() == []
        assert "ddp/mpi" in tiny.printed()
        assert "sees a world of 1" in tiny.printed()
        assert "error: the preflight ended with exit code 1" in tiny.printed()
        return
    (run,) = tiny.logs()
    assert run.state == "wrong world", run.problem
    assert run.exit["code"] in (
        2,
        143,
    )  # srun's is the largest of its ranks', and -K1 ends the other one with SIGTERM
    assert "error: srun started 2 ranks, but MPI" in run.path.with_suffix(".out").read_text()


def test_the_report_is_made_when_the_jobs_have_ended(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path), nodes=1)
    tiny.submit(report=True)
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert "ended: complete" in next(
        line for line in tiny.do("status").splitlines() if line.startswith("report ")
    )
    assert "ddp/gloo" in (tmp_path / "results" / "tiny" / "report.md").read_text()


@pytest.mark.thorough
def test_the_last_job_submits_more_until_the_last_look(tmp_path: Path) -> None:
    """One cell under two names, and a margin that no measurement reaches: not settled at six."""
    cells = ("ddp/gloo", "ddp/gloo@again")
    keys = 'blocks = 6\nmax_blocks = 8\nmargin = 0.00001\nreference = "ddp/gloo"\n'
    keys += 'candidate = "ddp/gloo@again"'
    tiny = Tiny(tmp_path, site(tmp_path), cells=cells, nodes=1, blocks=keys)
    tiny.submit(report=True)
    said = tiny.wait(limit_s=900)  # eight jobs and two reports
    assert "8 launches; " in said
    assert "; ends: all 8 launches are done\n" in said
    assert "tiny: 16 runs: 16 ok" in said
    assert "6 launches; " in tiny.printed()
    assert "n001-b07  submitted as job " in tiny.printed()
