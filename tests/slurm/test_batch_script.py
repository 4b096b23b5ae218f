"""The Slurm job script, run by bash for real with stand-ins for Slurm's commands: steps, signals,
time, requeues, refusals.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.record import read_run
from bench.study.files import read_study
from bench.study.plan import plan
from slurm.fit import fit, jobs, text_of
from slurm.render import render_batch, render_report
from slurm.site import read_site
from tests.slurm.stand_in import environment, install
from tests.slurm.studies import ROOT, SMALL, changed, write
from tests.slurm.test_job_script import Script, finish, last_event, wait_for


class BatchJob(Script):
    """Launch 0 at the most nodes of the test cluster; by default at two: four runs of four ranks.
    `changes` are the site's.
    """

    def __init__(
        self,
        folder: Path,
        behaviours: dict[int, str] | None = None,
        site: str = "testcluster",
        text: str = SMALL,
        changes: Mapping[str, object] | None = None,
    ) -> None:
        cells = 'cells = ["single", "ddp", "horovod"]'
        source = write(folder, text, world_sizes="nodes = [2]", cells=cells)
        written, where = read_study(source), changed(read_site(site), **(changes or {}))
        study = fit(written, where, (), source)
        results = folder / "results" / "small"
        self.text = text_of(study, written, source.read_text())
        job = jobs(plan(study, 1, results / "runs")[0], where)[-1]
        behave = {job.runs[n].config.position or 0: what for n, what in (behaviours or {}).items()}
        env = {
            **environment(folder, behave),
            "PATH": f"{install(folder)}{os.pathsep}{os.environ['PATH']}",
            "PREFLIGHT": "no",
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_NUM_NODES": str(job.nodes),
            "SLURM_JOB_NODELIST": f"r[1-{job.nodes}]",
            "SLURM_JOB_END_TIME": str(int(time.time()) + 3600),
            "FAKE_HOSTS": " ".join(f"r{n}" for n in range(1, job.nodes + 1)),
        }
        script = render_batch(study, self.text, where, job, results)
        super().__init__(folder / "job.sh", script, results, job.runs, env)

    def said(self) -> list[dict[str, Any]]:
        (path,) = (self.folder / "jobs").glob("*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def requeued(self) -> bool:
        return (self.script.parent / "scontrol.said").exists()


def test_a_job_looks_at_the_launch_and_measures(tmp_path: Path) -> None:
    job = BatchJob(tmp_path)
    code, out, err = job.finish(PREFLIGHT="yes")
    assert (code, err) == (0, "")
    assert job.states() == ["ok"] * 4
    assert out.splitlines() == [
        *(f"preflight of {framework}/gloo on 4 rank(s)" for framework in ("ddp", "horovod")),
        *(f"[{n}/4] {run.id}" for n, run in enumerate(job.runs, start=1)),
        "complete: 4 runs, 0 failed, 0 left for the next job",
    ]
    assert (job.folder / "study.toml").read_text() == job.text
    begin, end = job.said()
    same = {"job": "77", "restart": 0}
    assert begin.items() >= {"event": "begin", "nodes": "r[1-2]", **same}.items()
    assert end == {"event": "end", "reason": "complete", "failed": 0, "left": 0, "code": 0, **same}
    assert not job.requeued()
    place = f"--cpus-per-task=1 --kill-on-bad-exit=1 --mpi=pmix {sys.executable} -m bench"
    shown = "OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1"
    for run in job.runs:
        assert run.log.with_suffix(".out").read_text().splitlines() == [
            "stdin /dev/null",
            f"mpirun --nodes=2 --nodelist=r1,r2 --ntasks=4 --ntasks-per-node=2 {place} {shown}",
        ]
    tried = job.folder / "jobs" / "n002-launch00-77-0-preflight-ddp-gloo.out"
    assert tried.read_text().splitlines()[-2] == (
        "doctor --backend ddp --transport gloo --world-size 4 --threads 1 --dataset digits "
        f"--log-path {tried.with_suffix('.log')}"
    )


@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_job_that_is_stopped_is_started_again_with_whole_pairs(
    tmp_path: Path, number: signal.Signals, requeued: bool
) -> None:
    """By Slurm's warning before the time limit, not where somebody wanted it to end."""
    job = BatchJob(tmp_path, {3: "hang"})
    process, stopped = job.start(), job.runs[3].log
    wait_for(lambda: stopped.exists() and "start" in stopped.read_text())
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")
    assert job.states() == ["ok", "ok", "ok", "interrupted"]
    by = f"stopped by {number.name.removeprefix('SIG')}"
    assert out.splitlines()[-1] == f"{by}: 4 runs, 0 failed, 1 left for the next job"
    assert job.said()[-1]["reason"] == by
    assert job.requeued() is requeued
    if not requeued:
        return
    before = [run.log.read_text() for run in job.runs[:3]]
    code, out, _ = job.finish(SLURM_RESTART_COUNT="1", STAND_IN="{}")
    assert (code, job.states()) == (0, ["ok"] * 4)
    assert out.count("done before, skipped") == 2
    assert [run.log.read_text() for run in job.runs[:2]] == before[:2]
    assert job.runs[2].log.with_suffix(".attempt-1.jsonl").read_text() == before[2]
    for pair in (job.runs[:2], job.runs[2:]):
        assert len({read_run(run.log).allocation for run in pair}) == 1


def test_no_run_starts_that_cannot_end(tmp_path: Path) -> None:
    """Where the environment does not say when the job must end, Slurm is asked."""
    job = BatchJob(tmp_path)
    soon = str(int(time.time()) + 55)  # 30 s of lead and 30 s for a run
    code, out, _ = job.finish(SLURM_JOB_END_TIME=soon)
    assert (code, job.states()) == (1, ["planned"] * 4)
    assert out.splitlines()[-1] == "no time for more: 4 runs, 0 failed, 4 left for the next job"
    assert not job.requeued()  # it would not come further
    squeue = tmp_path / "bin" / "squeue"
    squeue.write_text('#!/bin/sh\ndate -d "40 seconds" +%Y-%m-%dT%H:%M:%S\n')
    assert "no time for more" in job.finish(SLURM_JOB_END_TIME="")[1]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"SLURM_JOB_NUM_NODES": "3"}, "the job has 3 nodes, these runs need 2\n"),
        ({"FAKE_HOSTS": "r1"}, "scontrol names 1 hosts for 'r[1-2]', the job has 2\n"),
        ({"SLURM_JOB_ID": ""}, "this is not a Slurm job; submit the script: sbatch "),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_run(
    tmp_path: Path, env: dict[str, str], message: str
) -> None:
    job = BatchJob(tmp_path)
    code, _, err = finish(job.start(ROOT, **env))
    assert code == 2
    assert f"error: {message}" in err
    assert job.states() == ["planned"] * 4


def test_of_a_job_submitted_twice_the_one_that_began_first_goes_on(tmp_path: Path) -> None:
    """Whoever began later sees the other, and leaves."""
    job = BatchJob(tmp_path)
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho RUNNING\n")
    begun = job.folder / "jobs" / "n002-launch00.jsonl"
    begun.parent.mkdir(parents=True)
    for first, code, err in ((55, 2, "error: job 55 is at work on the same runs\n"), (77, 0, "")):
        begins = [{"event": "begin", "job": str(job_id), "restart": 0} for job_id in (first, 55)]
        begun.write_text("".join(f"{json.dumps(begin)}\n" for begin in begins))
        assert job.finish()[::2] == (code, err)
        assert job.states() == ["planned" if code else "ok"] * 4


def test_wrong_input_stops_the_job_and_a_wrong_world_does_not(tmp_path: Path) -> None:
    """Ranks that come late end a run with exit code 2 too, and the next run may find them all."""
    job = BatchJob(tmp_path, {0: "another world", 2: "refuse under srun"})
    code, _, err = job.finish()
    assert (code, err) == (2, f"error: {job.runs[2].id}: model='resnet51' is unknown\n")
    assert job.states() == ["wrong world", "ok", "failed", "planned"]
    assert job.said()[-1]["reason"] == f"refused: {job.runs[2].id}: model='resnet51' is unknown"


def test_a_python_in_a_container_needs_another_on_the_host_for_the_driver(tmp_path: Path) -> None:
    job = BatchJob(tmp_path, changes={"setup__container": ["apptainer", "exec", "my image.sif"]})
    assert job.finish(PYTHON="inside", DRIVER="outside")[2].startswith("error: outside is not fo")
    assert job.finish(PYTHON="inside", DRIVER=sys.executable)[::2] == (0, "")
    printed = job.runs[0].log.with_suffix(".out").read_text()
    assert " --mpi=pmix apptainer exec my image.sif inside -m bench " in printed


def test_ibrun_takes_ranks_and_an_offset_and_one_world_at_a_time(tmp_path: Path) -> None:
    job = BatchJob(tmp_path, site="vista", text=SMALL.replace("turns = false\n", ""))
    assert job.finish()[0] == 0
    assert len(job.runs) == 4
    out = job.runs[0].log.with_suffix(".out").read_text().splitlines()[1]
    assert out.startswith(f"mpirun -n 2 -o 0 {sys.executable} -m bench ")
    why = "ibrun starts one world at a time"
    assert {last_event(run)["apart"] for run in job.runs} == {why}


def test_a_launch_that_fails_with_exit_code_0_is_no_success(tmp_path: Path) -> None:
    """As Slurm 22.05 does where its PMIx plug-in cannot set up a step."""
    job = BatchJob(tmp_path)
    said = "srun: error: task 0 launch failed: Unspecified error"
    (tmp_path / "bin" / "srun").write_text(f'#!/bin/sh\necho "{said}"\n')
    code, out, err = job.finish(PREFLIGHT="yes")
    assert (code, out) == (2, "preflight of ddp/gloo on 4 rank(s)\n")
    assert err.startswith(f"{said}\nerror: the preflight of ddp/gloo ended with exit code 0, see ")
    assert job.finish()[0] == 1
    assert job.states() == ["failed"] * 4


def test_the_report_job_reports_what_the_jobs_before_it_left(tmp_path: Path) -> None:
    """On nothing there is no report; with a failed run it has a gap."""
    job = BatchJob(tmp_path, {0: "fail"})
    text = render_report(read_study(write(tmp_path)), read_site("testcluster"), job.folder)
    report = Script(tmp_path / "report.sh", text, job.folder, [], job.env)
    assert report.finish(SLURM_JOB_ID="")[2].startswith("error: this is not a Slurm job; on this m")
    assert report.finish()[0] == 2
    assert job.finish()[0] == 1
    assert report.finish()[::2] == (0, "")
    assert "## Gaps" in (job.folder / "report.md").read_text()
    lines = (job.folder / "jobs" / "report.jsonl").read_text().splitlines()
    ends = [json.loads(line).get("reason") for line in lines]
    assert ends == [None, "no report, exit code 2", None, "complete"]
