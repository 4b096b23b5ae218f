"""Studies through `python -m slurm` and the rendered job script: cut short in every way, and finished by resuming."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import jobs, steps
from tests.cluster.studies import Tiny, end_of, site

pytestmark = pytest.mark.cluster

TWO_NODES = ("--nodelist=n1,n2",)


def bring_the_limit(job: str) -> None:
    """Let the job reach its time limit in a minute or so: Slurm counts in minutes, and looks twice in each."""
    hours, minutes, seconds = map(int, jobs.facts(job)["RunTime"].split(":"))
    steps.run(["scontrol", "update", f"JobId={job}", f"TimeLimit={(3600 * hours + 60 * minutes + seconds + 30) // 60 + 1}"])


def test_a_job_at_its_time_limit_and_the_rest_in_another(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path, requeue="false", ranks_per_node="1"))
    job = tiny.submit()
    tiny.stop_in_second_run(job)
    bring_the_limit(job)
    assert end_of(job) == "FAILED"  # by its own exit code: it stopped when it was warned
    assert not steps.leftovers()
    assert sorted(tiny.states()) == ["interrupted", "ok"]
    assert "stopped by USR1: 2 runs, 0 failed, 1 left for the next job" in tiny.printed()
    assert "1 ok, 1 interrupted" in tiny.wait(code=1)
    tiny.hold.unlink()
    tiny.do("resume", env={"PREFLIGHT": "no"})
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert tiny.states() == ["ok", "ok"]
    assert len({run.hosts for run in tiny.logs()}) == 1, "a pair is compared on the same nodes only"
    assert sorted(tiny.states(attempts=True)) == ["interrupted", "ok"], "what was done before is kept aside"


@pytest.mark.parametrize("how", ["time limit", "preempted"])
def test_a_job_that_slurm_starts_again_finishes_by_itself(tmp_path: Path, how: str) -> None:
    tiny = Tiny(tmp_path, site(tmp_path, TWO_NODES, ranks_per_node="1"))
    job = tiny.submit()
    tiny.stop_in_second_run(job)
    if how == "time limit":
        bring_the_limit(job)
    else:
        steps.run(["srun", "--partition=urgent", "--exclusive", "-N2", "-w", "n1,n2", "true"])
    jobs.wait_for(job, ["PENDING"])
    tiny.hold.unlink()
    # it would wait two minutes; and the limit goes back to where it was
    steps.run(["scontrol", "update", f"JobId={job}", "TimeLimit=15", "StartTime=now"])
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert tiny.states() == ["ok", "ok"]
    assert tiny.states(attempts=True) == ["interrupted"], "the first run was not done again"
    assert jobs.facts(job)["Restarts"] == "1"


def test_a_cancelled_study_says_where_it_stopped(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path))
    job = tiny.submit()
    tiny.stop_in_second_run(job)
    assert f"job {job} told to stop" in tiny.do("cancel")
    assert end_of(job) == "FAILED"
    assert not steps.leftovers()
    assert sorted(tiny.states()) == ["interrupted", "ok"]
    assert "ended: stopped by TERM" in tiny.do("status")


def test_two_studies_at_once_on_one_node(tmp_path: Path) -> None:
    """Looks at the launch, calibrations and runs of both meet on n1, two ranks each: no port is chosen twice."""
    shared = site(tmp_path, ("--nodelist=n1",), exclusive="false")
    both = [Tiny(tmp_path, shared, name, ("single", "ddp/gloo", "horovod/mpi"), nodes=1) for name in ("one", "other")]
    numbers = [tiny.submit(preflight=True) for tiny in both]
    for number in numbers:
        jobs.wait_for(number, ["RUNNING"])
    for tiny in both:
        assert f"{tiny.name}: 3 runs: 3 ok" in tiny.wait()
        assert tiny.states() == ["ok"] * 3
        assert {run.hosts for run in tiny.logs()} == {("n1",)}
        assert len(list((tmp_path / "results" / tiny.name / "calibration").glob("*.jsonl"))) == 2
