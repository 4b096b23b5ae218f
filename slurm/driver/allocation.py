"""A job's runs in a Slurm allocation: its hosts, its time, and what is left for the next job."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from bench.config import UsageError
from bench.launch import launcher
from bench.study.folder import StudyFolder
from bench.study.plan import plan
from bench.study.status import look, not_comparable
from slurm.driver.closing import Diary, NoRoom, complain, first_error, is_ok
from slurm.driver.job import LocalJob
from slurm.driver.script import GroupLines, JobOptions, RunLine
from slurm.driver.steps import Ended
from slurm.fit import PREFLIGHT_S

_MOST_RESTARTS = 3


class SlurmJob(LocalJob):
    """Looks at the launch first, and keeps to its time."""

    verb = "submit"
    grace_s = 30.0
    signals = (signal.SIGUSR1, signal.SIGTERM)

    def __init__(
        self, options: JobOptions, common: list[str], groups: list[GroupLines], diary: Diary
    ) -> None:
        super().__init__(options, common, groups)
        self.diary, self.restart, self.session = diary, diary.restart, ""
        self.names = f"{options.job}-{diary.id}-{diary.restart}"

    def work(self) -> int:
        self.steps.listen(*self.signals)
        # of a job submitted twice, lest two write one log
        for other in self.diary.begun_before():
            if _ask("squeue", "-h", "-j", other, "-o", "%T") == "RUNNING":
                raise UsageError(f"job {other} is at work on the same runs")
        self.hosts, self.end_s = _hosts(self.options.nodes), end_s(self.options.minutes)
        self._preflight()
        self._set_parted_aside()
        self.run_all()
        counts = f"{self.failed} failed, {self.left} left for the next job"
        print(f"{self._why()}: {len(self.lines)} runs, {counts}", flush=True)
        return 1 if self.failed or self.left else 0

    def finish(self, code: int, refused: str) -> None:
        """Tell the diary, and have Slurm start the job again for what is left."""
        try:
            reason = f"refused: {refused}" if refused else self._why()
            self.diary.tell("end", reason=reason, failed=self.failed, left=self.left, code=code)
        except NoRoom as error:
            if not refused:  # else the disk is full already, and the job has said it
                complain(f"error: {error}")
        # not after TERM: somebody's wish, or a preemption, after which Slurm does it itself; nor
        # where no run was begun: the next start would not come further
        again = self.left and self.begun and self.steps.stopped != signal.SIGTERM
        if self.options.requeue and again and self.restart < _MOST_RESTARTS:
            subprocess.run(["scontrol", "requeue", self.diary.id], check=False)

    def may_start(self, group: GroupLines) -> bool:
        if self.steps.stopped is None and self._has_time():
            return True
        if self.reason == "complete":
            self.reason = self._why("no time for more")
        return False

    def after_failure(self, ended: Ended, line: RunLine, log: Path, out: Path) -> None:
        printed = out.read_text(errors="replace")
        wrong = ended.code == 2 or re.search(r"task.*: Exited with exit code 2$", printed, re.M)
        # not a wrong world, which ranks also call it when their peers come late
        if wrong and '"type": "WrongWorld"' not in log.read_text(errors="replace"):
            raise UsageError(f"{line.id}: {first_error(out)}")

    def launch(self, ranks: int, shared: bool = False) -> list[str]:
        """Make the command on as many first hosts as ranks fill: a pair must have the same ones."""
        options = self.options
        # or a step would wait until the one before has left its cores
        overlap = ["--overlap"] if shared and options.launcher == "srun" else []
        return launcher.command(
            options.launcher,
            ranks,
            args=[*options.launch_args, *overlap],
            hosts=self.hosts,
            ranks_per_node=options.ranks_per_node,
            cpus_per_rank=options.cpus_per_rank,
        )

    def _why(self, otherwise: str = "") -> str:
        if self.steps.stopped is None:
            return otherwise or self.reason
        return f"stopped by {self.steps.stopped.name.removeprefix('SIG')}"

    def _set_parted_aside(self) -> None:
        """Set aside what a job that Slurm starts again has done without what it is compared with.

        It is done again beside that: a pair counts only inside one start of a job.
        """
        study = StudyFolder(self.folder.parent, self.folder.name).kept() if self.restart else None
        if study is None:
            return
        launches, ids = (
            1 + max(line.launch for line in self.lines),
            {line.id for line in self.lines},
        )
        planned = (run for launch in plan(study, launches, self.folder / "runs") for run in launch)
        looked_at = [look(run, job_is_running=False) for run in planned if run.id in ids]
        parted = not_comparable(looked_at, study.pairs)
        for log in (run.log for run in parted if is_ok(run.log)):
            StudyFolder.set_aside(log)

    def _has_time(self) -> bool:
        """Check whether another run has time to end: half as long again as the longest."""
        runs = max((len(group.lines) for group in self.groups), default=1)
        most = runs * self.options.limit_s
        need_s = min(self.longest_s * 1.5 + 10 if self.longest_s else 1e9, most)
        return self.end_s - time.time() - self.options.lead_s >= need_s

    def _preflight(self) -> None:
        """Look before the hours are spent: the same launch line, all ranks, every cell once."""
        if os.environ.get("PREFLIGHT", "yes") != "yes":
            return
        ranks = max((line.ranks for line in self.lines), default=1)
        for cell in self.options.cells:
            self._doctor(cell, ranks)
        if not self.options.cells:
            self._doctor("single", 1)

    def _doctor(self, cell: str, ranks: int) -> None:
        name = f"preflight of {cell}"
        print(f"{name} on {ranks} rank(s)", flush=True)
        backend, _, transport = cell.partition("/")
        out = self.folder / "jobs" / f"{self.names}-preflight-{cell.replace('/', '-')}.out"
        words = ["doctor", "--backend", backend, "--transport", transport or "none"]
        words += ["--world-size", str(ranks), *self.options.preflight]
        words += ["--log-path", str(out.with_suffix(".log"))]
        step = self.steps.start([*self.launch(ranks), *self.bench, *words], out, PREFLIGHT_S)
        ended = self.steps.wait(step)
        printed = out.read_text(errors="replace")
        # an exit code of 0 is not enough: the doctor's last line must be there
        done = ended.code == 0 and re.search(r"^-- .* 0 failure", printed, re.M)
        if self.steps.stopped is None and not done:
            for line in printed.splitlines():
                if re.match(r"failure |.*[Ee]rror: ", line):
                    complain(line)
            raise UsageError(f"the {name} ended with exit code {ended.code}, see {out}")


def check_allocation(options: JobOptions) -> None:
    """Raise UsageError where this is not the allocation that the runs need."""
    if not os.environ.get("SLURM_JOB_ID"):
        raise UsageError("this is not a Slurm job; submit the script: sbatch THIS_FILE")
    has = os.environ.get("SLURM_JOB_NUM_NODES", str(options.nodes))
    if has != str(options.nodes):
        raise UsageError(f"the job has {has} nodes, these runs need {options.nodes}")
    if shutil.which(options.launcher) is None:
        raise UsageError(f"{options.launcher} is not found; see [setup] of the site")


def _hosts(nodes: int) -> list[str]:
    named = os.environ.get("SLURM_JOB_NODELIST", "")
    hosts = _ask("scontrol", "show", "hostnames", named).split()
    if len(hosts) != nodes:
        raise UsageError(f"scontrol names {len(hosts)} hosts for '{named}', the job has {nodes}")
    return hosts


def end_s(minutes: int) -> float:
    """Find when the job must end, in seconds since 1970; by what it asked for if nobody tells."""
    end, end_s = os.environ.get("SLURM_JOB_END_TIME", ""), 0.0
    if end.isdecimal():
        end_s = float(end)
    else:  # Slurm before 23.02 does not say: ask it
        answer = _ask("squeue", "-h", "-j", os.environ["SLURM_JOB_ID"], "-o", "%e")
        with suppress(ValueError):
            end_s = datetime.fromisoformat(answer).timestamp()
    return end_s if end_s > time.time() else time.time() + 60 * minutes


def _ask(*command: str) -> str:
    """Run one of Slurm's commands and return what it says; '' where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
