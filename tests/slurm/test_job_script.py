"""The job script, run by bash, with a stand-in for mpirun: runs fail, hang, are interrupted."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.record import read_run
from bench.study.definition import Study
from bench.study.folder import StudyFolder
from bench.study.plan import PlannedRun, plan
from bench.study.status import look
from slurm.load import read_site
from slurm.render import render_job
from tests.slurm.stand_in import complete, environment, start
from tests.slurm.studies import ROOT, SMALL, small

Process = subprocess.Popen[str]


class Job:
    """One block of the small study as a script in a folder of its own, ready to be started."""

    def __init__(
        self,
        folder: Path,
        behaviours: dict[int, str] | None = None,
        limit_s: int = 30,
        runs: int = 7,
    ) -> None:
        self.study: Study = small(folder, time_limit_s=f"time_limit_s = {limit_s}")
        self.text = (folder / "study.toml").read_text()
        self.folder = folder / "results" / "small"
        self.runs: list[PlannedRun] = plan(self.study, 1, self.folder / "runs")[0][:runs]
        self.env = environment(folder, behaviours)
        self.script = folder / "job.sh"
        script = render_job(self.study, self.text, read_site("local"), self.runs, self.folder)
        self.script.write_text(script)

    def start(self, cwd: Path = ROOT, **env: str) -> Process:
        return start_process(["bash", str(self.script)], {**self.env, **env}, cwd)

    def finish(self, cwd: Path = ROOT, **env: str) -> tuple[int, str, str]:
        return finish(self.start(cwd, **env))

    def states(self) -> list[str]:
        return [look(run, job_is_running=False).state for run in self.runs]


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
    """A terminal's defaults: bash cannot trap a signal that it found ignored."""
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


def test_a_failed_run_is_recorded_and_does_not_stop_the_others(tmp_path: Path) -> None:
    job = Job(tmp_path, {1: "fail", 2: "crash"}, runs=4)
    code, out, err = job.finish()
    assert (code, err) == (1, "")
    assert job.states() == ["ok", "failed", "failed", "ok"]
    wall_s = [last_event(run).pop("wall_s") for run in job.runs]
    assert all(0 <= w < 20 for w in wall_s)
    left = [{**last_event(run), "wall_s": 0} for run in job.runs]
    assert all(len(event.pop("sha256")) == 64 for event in left)
    same = {"event": "exit", "timed_out": False, "limit_s": 30, "interrupted": False, "wall_s": 0}
    said = [event.pop("said") for event in left]
    assert all(event.pop("oom_kills") >= 0 for event in left)  # of the whole machine
    assert len({event.pop("session") for event in left}) == 1
    assert left == [{**same, "code": code} for code in (0, 1, 1, 0)]
    assert said[0] == said[3] == []
    assert said[2] == ["ModuleNotFoundError: No module named 'torch'", "mpirun: a rank exited"]
    assert [look(run, False).reason for run in job.runs[1:3]] == [
        "exit code 1: rank 1: RuntimeError: boom",
        "exit code 1: ModuleNotFoundError: No module named 'torch'",
    ]
    assert out.splitlines()[0] == f"[1/4] {job.runs[0].id}"
    assert out.splitlines()[-1] == "done: 4 runs, 2 failed"


def test_the_cause_is_kept_with_the_exit(tmp_path: Path) -> None:
    faults = {0: "out of memory", 1: "trip over a node", 2: "silent", 3: "babble"}
    job = Job(tmp_path, faults, runs=5)
    code, out, err = job.finish()
    assert (code, err) == (1, "")
    assert job.states() == ["out of memory", "node lost", "failed", "failed", "ok"]
    memory, node, silent, babble = (look(run, False) for run in job.runs[:4])
    assert memory.reason.startswith("slurmstepd: error: Detected 1 oom_kill event")
    assert memory.words == ("rank 1: Out Of Memory",)
    assert len(last_event(job.runs[0])["said"]) == 10
    assert node.reason == "srun: error: Node failure on r2"
    assert node.words == ("rank 0: RuntimeError: Connection closed by peer",)
    assert silent.reason.startswith("exit code 0: ")
    assert babble.reason == 'exit code 3: error: "a" \\ %s ???[31m??'
    assert last_event(job.runs[3])["said"][1] == "$(last) 'line'"
    assert out.splitlines()[-1] == "done: 5 runs, 4 failed"


def test_a_world_that_was_not_asked_for_is_recorded_and_stops_the_job(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: "another world"}, runs=2)
    code, _, err = job.finish()
    status = look(job.runs[0], False)
    ranks = job.runs[0].config.world_size
    message = f"world_size={ranks} was asked for, but mpirun started {ranks + 1} ranks"
    assert code == 2
    assert err.startswith(f"error: {job.runs[0].id}: {message}")
    assert job.states() == ["wrong world", "planned"]
    assert status.reason.startswith(f"rank 0: {message}")
    assert read_run(job.runs[0].log).host["launch"]["size"] == ranks + 1


def test_mpirun_gets_the_planned_ranks_and_the_sites_environment(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.finish()[0] == 0
    for run in job.runs:
        assert run.log.with_suffix(".out").read_text().splitlines() == [
            "stdin /dev/null",
            f"mpirun --bind-to none --map-by :OVERSUBSCRIBE -n {run.config.world_size} "
            f"{sys.executable} -m bench "
            "OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1",
        ]
        assert read_run(run.log).config == run.config


def test_a_script_run_by_hand_leaves_the_study_beside_the_logs(tmp_path: Path) -> None:
    job = Job(tmp_path, runs=1)
    assert job.finish()[0] == 0
    assert (job.folder / "study.toml").read_text() == job.text
    assert {path.name for path in job.folder.iterdir()} == {"study.toml", "jobs.jsonl", "runs"}
    (job.folder / "study.toml").write_text(SMALL.replace("blocks = 2", "blocks = 1"))
    before = (job.folder / "study.toml").read_text()
    assert job.finish()[0] == 0
    assert (job.folder / "study.toml").read_text() == before


@pytest.mark.parametrize("how", ["hang", "hang early"])
def test_a_hanging_run_is_timed_out(tmp_path: Path, how: str) -> None:
    job = Job(tmp_path, {0: how}, limit_s=2, runs=2)
    assert job.finish()[0] == 1
    assert job.states() == ["timed out", "ok"]
    assert last_event(job.runs[0])["timed_out"] is True
    assert last_event(job.runs[0])["code"] == 124
    assert look(job.runs[0], False).reason == "timed out after 2 s"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_run_at_once_and_starts_no_other(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    job = Job(tmp_path, {1: "hang"})
    process = job.start()
    wait_for(lambda: job.runs[1].log.exists() and "start" in job.runs[1].log.read_text())
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 2
    assert (process.returncode, err) == (code, "")
    assert job.states() == ["ok", "interrupted"] + ["planned"] * 5
    assert last_event(job.runs[1])["interrupted"] is True
    assert out.splitlines()[-1] == "stopped; the same command goes on with the next run"


def test_a_run_stopped_before_it_has_a_log_is_interrupted_too(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: "hang early"})
    process = job.start()
    out = job.runs[0].log.with_suffix(".out")
    wait_for(lambda: out.exists() and "importing" in out.read_text())
    assert look(job.runs[0], job_is_running=True).state == "running"
    process.terminate()
    process.communicate(timeout=60)
    assert job.states() == ["interrupted"] + ["planned"] * 6


def test_mpirun_is_signalled_once_even_if_we_are_signalled_twice(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: "name signals"})
    process = job.start()
    wait_for(lambda: job.runs[0].log.exists())
    process.terminate()
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert job.runs[0].log.with_suffix(".out").read_text().splitlines()[-1] == "SIGTERM"


def test_the_launchers_line_survives_a_torn_one(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: "torn"}, runs=1)
    assert job.finish()[0] == 1
    assert last_event(job.runs[0])["code"] == 137
    assert job.states() == ["failed"]


def test_a_run_whose_log_exists_is_skipped(tmp_path: Path) -> None:
    job = Job(tmp_path, runs=2)
    complete(job.runs[0].config)
    before = job.runs[0].log.read_text()
    code, out, _ = job.finish()
    assert code == 0
    assert job.runs[0].log.read_text() == before
    assert job.runs[1].log.exists()
    assert out.splitlines()[0] == f"[1/2] {job.runs[0].id}: done before, skipped"


def test_a_log_that_is_not_ok_counts_as_failed_and_is_left_alone(tmp_path: Path) -> None:
    job = Job(tmp_path, runs=2)
    start(job.runs[0].config)
    before = job.runs[0].log.read_text()
    code, out, _ = job.finish()
    assert code == 1
    assert job.runs[0].log.read_text() == before
    assert "its log exists but is not ok" in out.splitlines()[0]
    assert out.splitlines()[-1] == "done: 2 runs, 1 failed"


def test_wrong_input_stops_the_job_with_its_own_line(tmp_path: Path) -> None:
    job = Job(tmp_path, runs=2, behaviours={0: "refuse"})
    code, _, err = job.finish()
    assert (code, err) == (2, f"error: {job.runs[0].id}: model='resnet51' is unknown\n")
    assert not job.runs[1].log.exists()


def test_nothing_of_a_run_outlives_it(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: "orphan"}, runs=1)
    assert job.finish()[0] == 0
    left = int(job.runs[0].log.with_suffix(".out").read_text().split("left ")[1])
    wait_for(lambda: not alive(left))


def alive(pid: int) -> bool:
    """Whether a process still runs; a zombie nobody has collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_two_jobs_of_a_study_do_not_run_at_once(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: "hang"})
    folder = StudyFolder(tmp_path / "results", job.study)
    first = job.start()
    wait_for(job.runs[0].log.exists)
    assert folder.is_locked()
    rule = "another job of this study is running, or being submitted; wait for it or stop it"
    assert job.finish() == (2, "", f"error: {job.folder}: {rule}\n")
    first.terminate()
    first.communicate(timeout=60)
    assert not folder.is_locked()


def test_a_lock_handed_down_is_not_taken_twice(tmp_path: Path) -> None:
    job = Job(tmp_path, runs=1)
    job.folder.mkdir(parents=True)
    fd = os.open(job.folder / "jobs.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert job.finish()[0] == 2
    env = {**job.env, "STUDY_LOCK_FD": str(fd)}
    done = subprocess.run(["bash", job.script], cwd=ROOT, env=env, pass_fds=(fd,))
    os.close(fd)
    assert done.returncode == 0


def test_a_full_disk_stops_the_job_in_one_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; the other runs would fail alike."""
    job = Job(tmp_path, runs=3)
    limited = ["bash", "-c", "trap '' XFSZ; ulimit -f 1; exec bash \"$0\"", str(job.script)]
    done = subprocess.run(limited, cwd=ROOT, env=job.env, capture_output=True, text=True)
    cure = "File too large; make room, then the same command goes on with this run"
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
    assert job.finish(cwd=tmp_path) == (2, "", f"error: {rule}\n")
    assert not job.folder.exists()
