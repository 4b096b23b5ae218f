"""The runs of a job script, launch after launch: started, ended, recorded and counted."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.config import UsageError
from bench.launch import launcher, machine
from bench.lifecycle.turn_table import SHARED_MEMORY, VARIABLE, Place, TurnTable
from bench.record import read_run
from bench.study.folder import StudyFolder
from slurm.driver.closing import check_room, close, first_error, is_ok, new_session, oom_kills
from slurm.driver.script import GroupLines, JobOptions, RunLine
from slurm.driver.steps import Ended, Step, Steps


class LocalJob:
    """On machines without a scheduler; in a Slurm allocation `SlurmJob` does more."""

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
        """Do all runs; the exit code. Raises UsageError where going on is of no use."""
        self.steps.listen(*self.signals)
        if self.on_this_machine:
            remove_temporary(self.folder)
        self.run_all()
        if self.steps.stopped is not None:
            print("stopped; the same command goes on with the next run", flush=True)
            return 128 + self.steps.stopped
        print(f"done: {len(self.lines)} runs, {self.failed} failed", flush=True)
        return 1 if self.failed else 0

    @property
    def on_this_machine(self) -> bool:
        """Whether all ranks are here."""
        return self.options.launcher == "mpirun" and "--hostfile" not in self.options.launch_args

    def run_all(self) -> None:
        for group in self.groups:
            self._do(group)

    def may_start(self, group: GroupLines) -> bool:
        return self.steps.stopped is None

    def parts(self, group: GroupLines) -> list[GroupLines]:
        """Give the group, or its runs one by one where they cannot live at once: each says why."""
        lines, apart = group.lines, ""
        if len(lines) > 1 and "cuda" in self.common and machine.gpu_of_one_process(os.environ):
            apart = "a GPU of compute mode Exclusive_Process takes one world at a time"
        elif len(lines) > 1:
            try:
                _new_table(group).forget_name()
            except OSError as error:
                apart = f"{SHARED_MEMORY} cannot be written: {error.strerror}"
        return [GroupLines([line], apart) for line in lines] if apart else [group]

    def after_failure(self, ended: Ended, line: RunLine, log: Path, out: Path) -> None:
        if ended.code == 2:  # wrong input: all runs share it
            raise UsageError(f"{line.id}: {first_error(out)}")

    def launch(self, ranks: int, shared: bool = False) -> list[str]:
        """Make the launcher's command; `shared`: beside another world on the same cores."""
        program = os.environ.get("MPIRUN", "mpirun")
        return launcher.command("mpirun", ranks, program=program, args=self.options.launch_args)

    def check_host(self, log: Path) -> None:
        """Raise UsageError where a run was made on another machine: a pair needs one."""
        elsewhere, this = set(read_run(log).hosts) - {socket.gethostname()}, socket.gethostname()
        if elsewhere and self.on_this_machine:
            rule = "a study stays on one machine; choose another --study-dir"
            raise UsageError(
                f"{log} was made on {', '.join(elsewhere)}, and this is {this}: {rule}"
            )

    def _do(self, group: GroupLines) -> None:
        """Do the runs of a group not yet done; none is measured without those it belongs to."""
        logs = [self._files(line)[0] for line in group.lines]
        done = [is_ok(log) for log in logs]
        if all(done):
            for line, log in zip(group.lines, logs, strict=True):
                self.check_host(log)
                self._say(line, "done before, skipped")
        elif any(log.exists() for log in logs) and not self.restart:
            self.failed += len(done) - sum(done)
            again = f"rename it to do the run again ('python -m slurm {self.verb}' does)"
            for line, log, is_done in zip(group.lines, logs, done, strict=True):
                state = "its log exists but is not ok" if log.exists() else "its partner's exists"
                self._say(line, "done before" if is_done else f"{state}; {again}")
        elif not self.may_start(group):
            self.left += len(logs)
            if self.reason != "complete":
                for line in group.lines:
                    self._say(line, f"left for the next job, {self.reason}")
        else:
            for log in logs:
                if log.exists():  # a job that Slurm starts again does what it has not finished
                    StudyFolder.set_aside(log)
            self.begun += len(logs)
            for part in self.parts(group):
                self._start(part)

    def _say(self, line: RunLine, state: str = "") -> None:
        number = f"[{self.lines.index(line) + 1}/{len(self.lines)}]"
        print(f"{number} {line.id}{state and f': {state}'}", flush=True)

    def _start(self, group: GroupLines) -> None:
        """Run a group to its end, record how each of its runs ended, and count."""
        before, lines, wrong = oom_kills(), group.lines, []
        for line in lines:
            self._say(line)
        ended, failed = self._run(group)
        is_stopped, limit_s = self.steps.stopped is not None, self.limit_s(group)
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
            check_room(log.parent)
            if self.steps.stopped is not None:
                self.left += 1
            else:
                self.failed += 1
            self._say(line, f"exit code {end.code} after {end.wall_s} s, see {out}")
            wrong.append((end, line, log, out))
        if wrong:
            cause = lines[failed or 0].id
            self.after_failure(*next((w for w in wrong if w[1].id == cause), wrong[0]))

    def _files(self, line: RunLine) -> tuple[Path, Path]:
        """Name the files of a run: its log, and what it prints."""
        runs = self.folder / "runs"
        return runs / f"{line.id}.jsonl", runs / f"{line.id}.out"

    def _run(self, group: GroupLines) -> tuple[list[Ended], int | None]:
        """Start the runs of a group and wait for them; also which of them ended the others."""
        table, steps = _new_table(group) if len(group.lines) > 1 else None, []
        with ExitStack() as stack:
            try:
                for turn, line in enumerate(group.lines):
                    steps.append(self._start_run(line, self.limit_s(group), table, turn, stack))
                if table is None:
                    return [self.steps.wait(*steps)], None
                return self.steps.wait_together(steps, table.break_off), table.broken_by
            except OSError:  # a run could not be started
                self.steps.end(steps)
                for step in steps:
                    self.steps.wait(step)
                raise
            finally:
                if table is not None:
                    table.forget_name()

    def _start_run(
        self, line: RunLine, limit_s: float, table: TurnTable | None, turn: int, stack: ExitStack
    ) -> Step:
        """Start a run; `stack` removes what it leaves behind."""
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
        if self.on_this_machine:
            prefix = temporary_prefix(self.folder)
            folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
            env["TMPDIR"] = stack.enter_context(folder)
        return self.steps.start(command, out, limit_s, env, *before_end)

    def limit_s(self, group: GroupLines) -> int:
        """Compute the limit of each run of a group in seconds, as each waits for the others."""
        return self.options.limit_s * len(group.lines)


def _new_table(group: GroupLines) -> TurnTable:
    """Make the table that the runs of a group share on this node. Raises OSError."""
    return TurnTable(Place(secrets.token_hex(8), 0, tuple(line.ranks for line in group.lines)))


def temporary_prefix(folder: Path) -> str:
    """Make the prefix of the temporary folders of this study's runs on this machine alone."""
    return f"run-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]}-"


def remove_temporary(folder: Path) -> None:
    """Remove what a killed driver left; the lock says that no run of the study uses it now."""
    for left in Path(tempfile.gettempdir()).glob(f"{temporary_prefix(folder)}*"):
        shutil.rmtree(left, ignore_errors=True)
