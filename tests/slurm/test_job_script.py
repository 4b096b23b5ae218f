"""The job script, run by bash, with a stand-in for mpirun: runs fail, hang, are interrupted."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.study.plan import PlannedRun, plan
from bench.study.status import look
from slurm.render import render_job
from slurm.site import read_site
from tests.slurm.stand_in import complete, environment, start
from tests.slurm.studies import ROOT, small

Process = subprocess.Popen[str]


class Script:
    """A job script of planned runs, ready to be started with stand-ins."""

    def __init__(
        self, script: Path, text: str, folder: Path, runs: Sequence[PlannedRun], env: dict[str, str]
    ) -> None:
        self.script, self.folder, self.runs, self.env = script, folder, runs, env
        script.write_text(text)

    def start(self, cwd: Path = ROOT, /, **env: str) -> Process:
        return start_process(["bash", str(self.script)], {**self.env, **env}, cwd)

    def finish(self, cwd: Path = ROOT, /, **env: str) -> tuple[int, str, str]:
        return finish(self.start(cwd, **env))

    def states(self) -> list[str]:
        return [look(run, job_is_running=False).state for run in self.runs]


class Job(Script):
    """One launch of the small study as a script in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        behaviours: dict[int, str] | None = None,
        limit_s: int = 30,
        runs: int = 7,
    ) -> None:
        study = small(folder, time_limit_s=f"time_limit_s = {limit_s}")
        self.text = (folder / "study.toml").read_text()
        results = folder / "results" / "small"
        planned = plan(study, 1, results / "runs")[0][:runs]
        text = render_job(study, self.text, read_site("local"), planned, results)
        super().__init__(folder / "job.sh", text, results, planned, environment(folder, behaviours))


OTHER_WORK = re.compile(r"^warning: other processes take .*\n", re.MULTILINE)


def start_process(command: list[str], env: dict[str, str], cwd: Path = ROOT) -> Process:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        text=True,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
        preexec_fn=terminal_signals,
    )


def finish(process: Process) -> tuple[int, str, str]:
    """Exit code, standard output, standard error.

    Without the warning of other work on the machine: tests run beside one another.
    """
    out, err = process.communicate(timeout=120)
    return process.returncode, out, OTHER_WORK.sub("", err)


def terminal_signals() -> None:
    """Set a terminal's defaults: bash cannot trap a signal that it found ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def last_event(run: PlannedRun) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(run.log.read_text().splitlines()[-1])
    return event


def wait_for(condition: Callable[[], bool], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:g} s in vain"
        time.sleep(0.02)


def test_a_failed_run_is_recorded_with_its_cause_and_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    faults = ("fail", "crash", "out of memory", "trip over a node", "silent", "babble")
    job = Job(tmp_path, dict(enumerate(faults)))
    code, out, err = job.finish()
    assert (code, err) == (1, "")
    ends = ["failed", "failed", "out of memory", "node lost", "failed", "failed", "ok"]
    assert job.states() == ends
    left = [last_event(run) for run in job.runs]
    same = {"event": "exit", "timed_out": False, "limit_s": 30, "interrupted": False}
    for event, code in zip(left, (1, 1, 137, 1, 0, 3, 0), strict=True):
        assert event.items() >= {**same, "code": code}.items()
    assert len({event["session"] for event in left}) == 1
    crash = ["ModuleNotFoundError: No module named 'torch'", "mpirun: a rank exited"]
    assert (left[1]["said"], left[6]["said"]) == (crash, [])
    assert len(left[2]["said"]) == 10  # of a thousand errors
    failed, crashed, memory, node, silent, babble = (look(run, False) for run in job.runs[:6])
    assert failed.reason == "exit code 1: rank 1: RuntimeError: boom"
    assert crashed.reason == f"exit code 1: {crash[0]}"
    assert memory.reason.startswith("slurmstepd: error: Detected 1 oom_kill event")
    assert memory.words == ("srun: error: r2: task 1: Out Of Memory",)
    assert node.reason == "srun: error: Node failure on r2"
    assert silent.reason.startswith("exit code 0: ")
    assert babble.reason == 'exit code 3: error: "a" \\ %s ???[31m??'
    assert out.splitlines()[-1] == "done: 7 runs, 6 failed"
    place = "--bind-to none --map-by :OVERSUBSCRIBE"
    env = "OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1"
    for run in job.runs:
        ranks = f"-n {run.config.world_size} {sys.executable} -m bench"
        printed = run.log.with_suffix(".out").read_bytes().splitlines()[:2]
        assert printed == [b"stdin /dev/null", f"mpirun {place} {ranks} {env}".encode()]
    assert (job.folder / "study.toml").read_text() == job.text
    assert {path.name for path in job.folder.iterdir()} == {"study.toml", "jobs.jsonl", "runs"}


def test_a_run_that_hangs_is_timed_out(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: "hang"}, limit_s=10, runs=2)  # the second must end well within it
    assert job.finish()[0] == 1
    assert job.states() == ["timed out", "ok"]
    assert last_event(job.runs[0]).items() >= {"timed_out": True, "code": 124}.items()
    assert look(job.runs[0], False).reason == "timed out after 10 s"


def test_a_run_whose_log_exists_is_left_alone(tmp_path: Path) -> None:
    """Where it is not ok, it counts as failed."""
    job = Job(tmp_path, runs=3)
    complete(job.runs[0].config)
    start(job.runs[1].config)
    before = [run.log.read_text() for run in job.runs[:2]]
    code, out, _ = job.finish()
    assert (code, out.splitlines()[-1]) == (1, "done: 3 runs, 1 failed")
    assert [run.log.read_text() for run in job.runs[:2]] == before
    assert job.runs[2].log.exists()
    assert out.splitlines()[0] == f"[1/3] {job.runs[0].id}: done before, skipped"


def test_a_full_disk_stops_the_job_in_one_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; the other runs would fail alike."""
    job = Job(tmp_path, runs=3)
    limited = ["bash", "-c", "trap '' XFSZ; ulimit -f 1; exec bash \"$0\"", str(job.script)]
    done = subprocess.run(limited, cwd=ROOT, env=job.env, capture_output=True, text=True)
    cure = "File too large; make room, then start this again, which goes on with this run"
    told = f"error: {job.runs[0].log} cannot be written: {cure}\n"
    assert (done.returncode, done.stderr) == (2, told)
    assert not job.runs[1].log.exists()
    assert not [*job.folder.rglob("*.tmp"), *job.folder.rglob(".*")]
    job.runs[0].log.unlink()
    assert job.finish()[0] == 0  # with room again


def test_missing_programs_and_a_wrong_place_are_one_line(tmp_path: Path) -> None:
    job = Job(tmp_path)
    cure = "run 'make setup' or say where it is: PYTHON=... MPIRUN=..."
    assert job.finish(MPIRUN="no-mpirun") == (2, "", f"error: no-mpirun is not found; {cure}\n")
    assert job.finish(PYTHON="no-python") == (2, "", f"error: no-python is not found; {cure}\n")
    rule = f"no slurm/ in {tmp_path}; run this script from the repository root"
    assert job.finish(tmp_path) == (2, "", f"error: {rule}\n")
    assert not job.folder.exists()
