"""Studies through `python -m slurm` and the rendered job script: cut short, and finished after."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import config, daemons, node, steps
from tests.cluster.steps import LOST
from tests.cluster.studies import Tiny, site

pytestmark = pytest.mark.cluster

TWO_NODES = ("--nodelist=n1,n2",)


def test_a_job_at_its_time_limit_and_the_rest_in_another(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path, requeue="false", ranks_per_node="1"))
    job = tiny.submit()
    tiny.stop_in_second_run()
    # Slurm looks twice in each minute, and warns half a minute early: at its next look
    done = steps.run(["scontrol", "update", f"JobId={job}", "EndTime=now+60"])
    assert done.returncode == 0, done.stderr
    assert steps.wait_for(job) == "FAILED"  # by its own exit code: it stopped when it was warned
    assert not steps.leftovers()
    assert sorted(tiny.states()) == ["interrupted", "ok"]
    assert "stopped by USR1: 2 runs, 0 failed, 1 left for the next job" in tiny.printed()
    assert "1 ok, 1 interrupted" in tiny.wait(code=1)
    tiny.hold.unlink()
    tiny.resume()
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert tiny.states() == ["ok", "ok"]
    assert len({run.hosts for run in tiny.logs()}) == 1, "a pair is compared on the same nodes only"
    assert sorted(tiny.states(attempts=True)) == ["interrupted", "ok"], "what was before is kept"


def test_a_job_that_slurm_starts_again_finishes_by_itself(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path, TWO_NODES, ranks_per_node="1"))
    job = tiny.submit()
    tiny.stop_in_second_run()
    assert steps.run(["scontrol", "requeue", job]).returncode == 0
    steps.wait_for(job, ["PENDING"])
    tiny.hold.unlink()
    steps.start_again(job)
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert tiny.states() == ["ok", "ok"]
    assert sorted(tiny.states(attempts=True)) == ["interrupted", "ok"], "both of a pair go again"
    assert {run.allocation for run in tiny.logs()} == {f"job {job}, restart 1"}
    assert steps.facts(job)["Restarts"] == "1"


def test_a_cancelled_study_says_where_it_stopped(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, site(tmp_path))
    job = tiny.submit()
    tiny.stop_in_second_run()
    assert f"job {job} told to stop" in tiny.do("cancel")
    assert steps.wait_for(job) == "FAILED"
    assert not steps.leftovers()
    assert sorted(tiny.states()) == ["interrupted", "ok"]
    assert "ended: stopped by TERM" in tiny.do("status")


def test_a_node_that_goes_down(tmp_path: Path, node_to_lose: None) -> None:
    tiny = Tiny(tmp_path, site(tmp_path, TWO_NODES, requeue="false", ranks_per_node="1"))
    job = tiny.submit()
    tiny.stop_in_first_run()
    node.lose(LOST)
    assert steps.wait_for(job) == "NODE_FAIL"
    tiny.hold.unlink()
    assert not steps.leftovers(40)
    assert "ok" not in tiny.states()
    node.start(LOST)
    daemons.wait_idle(config.NODES, 60)
    tiny.resume()
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
    assert {run.hosts for run in tiny.logs()} == {("n1", "n2")}


def test_a_site_that_names_the_wrong_plug_in_is_refused(tmp_path: Path) -> None:
    """Without PMIx the wheel's Open MPI starts silent worlds of one rank: nothing is measured."""
    tiny = Tiny(tmp_path, site(tmp_path, mpi='"none"', ranks_per_node="1"), cells=("ddp/mpi",))
    job = tiny.submit(preflight=True)
    assert steps.wait_for(job) == "FAILED"
    assert tiny.logs() == []
    assert "sees a world of 1" in tiny.printed()
    assert "error: the preflight of ddp/mpi ended with exit code" in tiny.printed()


def test_jobs_go_on_until_the_last_look_and_the_report_is_made(tmp_path: Path) -> None:
    """One cell in two arms, and a margin that no measurement reaches: not settled at six."""
    cells = ("ddp/gloo",)
    keys = 'launches = 6\nmax_launches = 8\nmargin = 0.00001\nreference = "ddp/gloo"\n'
    keys += 'candidate = "ddp/gloo"\narms = { once = {}, again = { over = "once" } }'
    tiny = Tiny(tmp_path, site(tmp_path), cells=cells, nodes=1, launches=keys)
    tiny.submit(report=True)
    said = tiny.wait(limit_s=900)  # eight jobs and two reports
    assert "; ends: all 8 launches are done\n" in said
    assert "tiny: 16 runs: 16 ok" in said
    assert "6 launches; " in tiny.printed()
    assert "n001-launch07  submitted as job " in tiny.printed()
    assert "ddp/gloo" in (tmp_path / "results" / "tiny" / "report.md").read_text()


def test_all_cells_take_turns_on_two_nodes_and_end_alike(tmp_path: Path) -> None:
    """At two ranks all four cells agree bit for bit, as they do on one machine."""
    cells = ("ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo")
    own = site(tmp_path, ranks_per_node="1", requeue="false")
    tiny = Tiny(tmp_path, own, cells=cells, turns=True)
    tiny.submit()
    assert "tiny: 4 runs: 4 ok" in tiny.wait(), tiny.printed()
    logs = tiny.logs()
    launches = {(run.config.transport, run.host["turns"]["launch"]) for run in logs if run.config}
    assert len(launches) == 2
    assert {run.hosts for run in logs} == {config.NODES[:2]}
    assert len({run.end["parameters_sha256"] for run in logs}) == 1
    assert not any("apart" in run.exit for run in logs)
