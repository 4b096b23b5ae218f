"""Execution of a job script's runs, launch after launch, with a record of how each ended."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from bench.config import UsageError
from bench.launch import launcher, machine
from bench.lifecycle.turns import VARIABLE, Place, TurnTable
from bench.study.definition import Study
from bench.study.folder import StudyFolder
from bench.study.plan import plan
from bench.study.status import RunStatus, look, not_comparable
from slurm.driver.closing import Diary, close, complain, first_error, is_ok, new_session, oom_kills
from slurm.driver.script import GroupLines, JobOptions, RunLine
from slurm.driver.steps import Ended, Step, Steps
from slurm.fit import PREFLIGHT_S

_MOST_RESTARTS = 3


class LocalJob:
    """A job's runs on machines without a scheduler; `SlurmJob` adds what Slurm needs."""

    verb = "run"  # of `python -m slurm`, that goes on with the study
    grace_s = 10.0  # for a launcher to end its ranks, before it is killed
    signals: tuple[signal.Signals, ...] = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    restart = 0  # how often Slurm has started the job again

    def __init__(
        self,
        options: JobOptions,
        common: list[str],
        groups: list[GroupLines],
        keep_open: Sequence[int] = (),
    ) -> None:
        self.options, self.common, self.groups = options, common, groups
        self.lines = [line for group in groups for line in group.lines]
        self.steps = Steps(self.grace_s, keep_open)
        self.folder = options.study_dir
        self.bench = [*options.container, options.python, "-m", "bench"]
        self.reason = "complete"  # why the job ends
        self.begun = self.failed = self.left = self.longest_s = 0
        self.session = new_session()  # stands for an allocation where there is none

    def work(self) -> int:
        """Do all runs; return 0 if all ok, 1 if not, 128 + n after signal n. Raises UsageError."""
        self.steps.listen(*self.signals)
        self.run_all()
        if self.steps.stopped is not None:
            print("stopped; the same command goes on with the next run", flush=True)
            return 128 + self.steps.stopped
        print(f"done: {len(self.lines)} runs, {self.failed} failed", flush=True)
        return 1 if self.failed else 0

    def run_all(self) -> None:
        """Do the groups that have no log; after a restart by Slurm, all groups that are not ok."""
        for group in self.groups:
            logs = [self._files(line)[0] for line in group.lines]
            done = [is_ok(log) for log in logs]
            if all(done):
                for line in group.lines:
                    self._say(line, "done before, skipped")
            elif any(log.exists() for log in logs) and not self.restart:
                self.failed += len(done) - sum(done)
                again = f"rename it to do the run again ('python -m slurm {self.verb}' does)"
                for line, log, is_done in zip(group.lines, logs, done, strict=True):
                    state = (
                        "its log exists but is not ok" if log.exists() else "its partner's exists"
                    )
                    self._say(line, "done before" if is_done else f"{state}; {again}")
            elif not self.may_start():
                self.left += len(logs)
                if self.reason != "complete":
                    for line in group.lines:
                        self._say(line, f"left for the next job, {self.reason}")
            else:
                for log in logs:
                    if log.exists():  # a job that Slurm starts again does what it has not finished
                        StudyFolder.set_aside(log)
                self.begun += len(logs)
                parts = [group]
                if (
                    len(logs) > 1
                    and "cuda" in self.common
                    and machine.gpu_of_one_process(os.environ)
                ):
                    apart = "a GPU of compute mode Exclusive_Process takes one world at a time"
                    parts = [GroupLines([line], apart) for line in group.lines]
                for part in parts:
                    self._start(part)

    def may_start(self) -> bool:
        return self.steps.stopped is None

    def after_failure(self, ended: Ended, line: RunLine, log: Path, out: Path) -> None:
        if ended.code == 2:  # wrong input: all runs share it
            raise UsageError(f"{line.id}: {first_error(out)}")

    def launch(self, ranks: int, shared: bool = False) -> list[str]:
        """Return the command that starts `ranks` ranks; `shared`: other runs use the same cores."""
        program = os.environ.get("MPIRUN", "mpirun")
        return launcher.command("mpirun", ranks, program=program, args=self.options.launch_args)

    def _say(self, line: RunLine, state: str = "") -> None:
        number = f"[{self.lines.index(line) + 1}/{len(self.lines)}]"
        print(f"{number} {line.id}{state and f': {state}'}", flush=True)

    def _start(self, group: GroupLines) -> None:
        """Do a group of runs, record how each ended, and count those that failed or stopped."""
        before, lines, wrong = oom_kills(), group.lines, []
        limit_s = self.options.limit_s * len(lines)  # as each waits for the others
        for line in lines:
            self._say(line)
        ended, failed = self._run(group, limit_s)
        is_stopped = self.steps.stopped is not None
        for index, (line, end) in enumerate(zip(lines, ended, strict=True)):
            by_itself = failed in (None, index) or end.timed_out or is_stopped
            partner = "" if by_itself else lines[failed or 0].id
            log, out = self._files(line)
            named = {"session": self.session, "partner": partner, "apart": group.apart}
            facts = {name: value for name, value in named.items() if value}
            killed = oom_kills() - before
            close(log, out, end, limit_s, is_stopped, oom_kills=killed, **facts)
        self.longest_s = max(self.longest_s, *(end.wall_s for end in ended))
        for line, end in zip(lines, ended, strict=True):
            log, out = self._files(line)
            if end.code == 0 and is_ok(log):
                continue
            if is_stopped:
                self.left += 1
            else:
                self.failed += 1
            self._say(line, f"exit code {end.code} after {end.wall_s} s, see {out}")
            wrong.append((end, line, log, out))
        if wrong:
            cause = lines[failed or 0].id
            self.after_failure(*next((w for w in wrong if w[1].id == cause), wrong[0]))

    def _files(self, line: RunLine) -> tuple[Path, Path]:
        """Return the paths of a run's log and of the file with its output."""
        runs = self.folder / "runs"
        return runs / f"{line.id}.jsonl", runs / f"{line.id}.out"

    def _run(self, group: GroupLines, limit_s: int) -> tuple[list[Ended], int | None]:
        """Do a group's runs. Return how each ended, and the index of the first to end too early."""
        table = None
        if len(group.lines) > 1:
            sizes = tuple(line.ranks for line in group.lines)
            table = TurnTable(Place(secrets.token_hex(8), 0, sizes))
        steps: list[Step] = []
        with ExitStack() as stack:
            try:
                for turn, line in enumerate(group.lines):
                    steps.append(self._start_run(line, limit_s, table, turn, stack))
                ended = self.steps.wait(*steps)
                return ended, None if table is None else table.broken_by
            except OSError:  # a run could not be started
                for step in steps:
                    step.end()
                self.steps.wait(*steps)
                raise
            finally:
                if table is not None:
                    table.forget_name()

    def _start_run(
        self, line: RunLine, limit_s: float, table: TurnTable | None, turn: int, stack: ExitStack
    ) -> Step:
        """Start a run; `table` and `turn` place it in a group, `stack` deletes temporary files."""
        log, out = self._files(line)
        command = [*self.launch(line.ranks, shared=table is not None), *self.bench]
        command += [*self.common, "--world-size", str(line.ranks)]
        command += [*line.options, "--log-path", str(log)]
        env, before_end = dict(os.environ), []
        if table is not None:
            env[VARIABLE] = replace(table.place, turn=turn).words
            # mpirun kills at once, where a rank that it has told to end was stopped until then
            before_end = [partial(table.break_off, turn)]
        # on one machine, for temporary files: mpirun kills what would have removed them
        if self.options.launcher == "mpirun" and "--hostfile" not in self.options.launch_args:
            folder = tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True)
            env["TMPDIR"] = stack.enter_context(folder)
        return self.steps.start(command, out, limit_s, env, *before_end)


class SlurmJob(LocalJob):
    """A job's runs in a Slurm allocation: `bench doctor` first, then as many as time allows."""

    verb = "submit"
    grace_s = 30.0
    signals = (signal.SIGUSR1, signal.SIGTERM)

    def __init__(
        self, options: JobOptions, common: list[str], groups: list[GroupLines], diary: Diary
    ) -> None:
        super().__init__(options, common, groups)
        self.diary, self.restart, self.session = diary, diary.restart, ""

    def work(self) -> int:
        self.steps.listen(*self.signals)
        # of a job submitted twice, lest two write one log
        for other in self.diary.begun_before():
            if _ask("squeue", "-h", "-j", other, "-o", "%T") == "RUNNING":
                raise UsageError(f"job {other} is at work on the same runs")
        named = os.environ.get("SLURM_JOB_NODELIST", "")
        self.hosts, nodes = _ask("scontrol", "show", "hostnames", named).split(), self.options.nodes
        if len(self.hosts) != nodes:
            wrong = f"scontrol names {len(self.hosts)} hosts for '{named}'"
            raise UsageError(f"{wrong}, the job has {nodes}")
        self.end_s = _end_s(self.options.minutes)
        if os.environ.get("PREFLIGHT", "yes") == "yes":
            # before the hours are spent: the same group, all ranks, every cell once
            ranks = max((line.ranks for line in self.lines), default=1)
            for cell in self.options.cells or ["single"]:
                self._doctor(cell, ranks if self.options.cells else 1)
        if self.restart:
            self._set_parted_aside()
        self.run_all()
        counts = f"{self.failed} failed, {self.left} left for the next job"
        print(f"{self._why()}: {len(self.lines)} runs, {counts}", flush=True)
        return 1 if self.failed or self.left else 0

    def finish(self, code: int, refused: str) -> None:
        """Record the job's end; with `options.requeue`, requeue it if runs are left and one began.

        Not after SIGTERM. `code` is the exit code, `refused` the error that ended the job, or ''.
        """
        try:
            reason = f"refused: {refused}" if refused else self._why()
            self.diary.tell("end", reason=reason, failed=self.failed, left=self.left, code=code)
        except UsageError as error:
            if not refused:  # else the disk is full already, and the job has said it
                complain(f"error: {error}")
        # not after TERM: somebody's wish, or a preemption, after which Slurm does it itself; nor
        # where no run was begun: the next start would not come further
        again = self.left and self.begun and self.steps.stopped != signal.SIGTERM
        if self.options.requeue and again and self.restart < _MOST_RESTARTS:
            subprocess.run(["scontrol", "requeue", self.diary.id], check=False)

    def may_start(self) -> bool:
        """Return whether no signal came and enough time is left for another group of runs."""
        runs = max((len(group.lines) for group in self.groups), default=1)
        most = runs * self.options.limit_s
        need_s = min(self.longest_s * 1.5 + 10 if self.longest_s else 1e9, most)
        has_time = self.end_s - time.time() - self.options.lead_s >= need_s
        if self.steps.stopped is None and has_time:
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
        """Return a command to start `ranks` ranks on the job's hosts; `shared` as in LocalJob."""
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
        """Rename logs of runs that are ok, but must be repeated with those compared with them."""
        study, statuses = look_at_runs(StudyFolder(self.folder.parent, self.folder.name))
        ids = {line.id for line in self.lines}
        of_job = [status for status in statuses if status.run.id in ids]
        for run in not_comparable(of_job, study.pairs):
            if is_ok(run.log):
                StudyFolder.set_aside(run.log)

    def _doctor(self, cell: str, ranks: int) -> None:
        name = f"preflight of {cell}"
        print(f"{name} on {ranks} rank(s)", flush=True)
        backend, _, transport = cell.partition("/")
        job = f"{self.options.job}-{self.diary.id}-{self.diary.restart}"
        out = self.folder / "jobs" / f"{job}-preflight-{cell.replace('/', '-')}.out"
        words = ["doctor", "--backend", backend, "--transport", transport or "none"]
        words += ["--world-size", str(ranks), *self.options.preflight]
        words += ["--log-path", str(out.with_suffix(".log"))]
        step = self.steps.start([*self.launch(ranks), *self.bench, *words], out, PREFLIGHT_S)
        (ended,) = self.steps.wait(step)
        printed = out.read_text(errors="replace")
        # an exit code of 0 is not enough: the doctor's word on the cell must be there
        done = ended.code == 0 and re.search(rf"^(ok|warning) +{re.escape(cell)} ", printed, re.M)
        if self.steps.stopped is None and not done:
            for line in printed.splitlines():
                if re.match(r"failure |.*[Ee]rror: ", line):
                    complain(line)
            raise UsageError(f"the {name} ended with exit code {ended.code}, see {out}")


def look_at_runs(folder: StudyFolder) -> tuple[Study, list[RunStatus]]:
    """Return the study kept in a folder, and the state of each run asked for, as if none runs."""
    study = folder.kept()
    assert study is not None, "a job keeps it before its first run"
    planned = plan(study, folder.asked_launches(study), folder.runs)
    return study, [look(run, job_is_running=False) for launch in planned for run in launch]


def check_allocation(options: JobOptions) -> None:
    """Raise UsageError outside a Slurm job, on a wrong number of nodes, or without the launcher."""
    if not os.environ.get("SLURM_JOB_ID"):
        raise UsageError("this is not a Slurm job; submit the script: sbatch THIS_FILE")
    has = os.environ.get("SLURM_JOB_NUM_NODES", str(options.nodes))
    if has != str(options.nodes):
        raise UsageError(f"the job has {has} nodes, these runs need {options.nodes}")
    if shutil.which(options.launcher) is None:
        raise UsageError(f"{options.launcher} is not found; see [setup] of the site")


def _end_s(minutes: int) -> float:
    """Return the job's end in seconds since 1970: as Slurm says, else `minutes` from now."""
    end, end_s = os.environ.get("SLURM_JOB_END_TIME", ""), 0.0
    if end.isdecimal():
        end_s = float(end)
    else:  # Slurm before 23.02 does not say: ask it
        answer = _ask("squeue", "-h", "-j", os.environ["SLURM_JOB_ID"], "-o", "%e")
        with suppress(ValueError):
            end_s = datetime.fromisoformat(answer).timestamp()
    return end_s if end_s > time.time() else time.time() + 60 * minutes


def _ask(*command: str) -> str:
    """Run one of Slurm's commands and return its output; '' if it fails or takes over 60 s."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
