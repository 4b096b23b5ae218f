"""The runs of a job script, one after the other: started, ended, recorded and counted."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from bench.config import UsageError
from bench.launch import launcher
from bench.record import read_run
from bench.study.folder import StudyFolder
from slurm.driver.closing import check_room, close, is_ok, new_session, oom_kills
from slurm.driver.steps import Ended, Steps


class Line(NamedTuple):
    """`run ID RANKS OPTIONS` of a job script."""

    id: str
    ranks: int
    options: list[str]

    @property
    def backend(self) -> str:
        return self._option("--backend", "")

    @property
    def block(self) -> int:
        index = self._option("--block", "")
        return int(index) if index.isdecimal() else 0  # whatever else it is, the run refuses it

    def _option(self, name: str, otherwise: str) -> str:
        return dict(zip(self.options, self.options[1:], strict=False)).get(name, otherwise)


def read_lines(text: str) -> list[Line]:
    """The run lines of a script; comments and empty lines count for nothing."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UsageError(f"run line {number}: {error}; correct it: {line}") from None
        if not words:
            continue
        if len(words) < 3 or words[0] != "run" or not re.fullmatch("[1-9][0-9]{0,8}", words[2]):
            raise UsageError(f"run line {number} is not `run ID RANKS OPTIONS`: {line}")
        lines.append(Line(words[1], int(words[2]), words[3:]))
    return lines


class Settings(argparse.Namespace):
    """What a job script says of itself and its site; __main__.py explains each."""

    study_dir: Path
    study: str
    limit_s: int
    python: str
    container: list[str]
    launcher: str
    launch_args: list[str]
    own_env: dict[str, list[str]]
    job: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int | None
    minutes: int
    lead_s: int
    requeue: bool
    no_kill: bool
    cells: list[str]
    preflight: list[str]
    calibration: list[str]
    report: bool
    again: list[str]


class Job:
    """On machines without a scheduler; in a Slurm allocation `SlurmJob` does more."""

    verb = "run"  # of `python -m slurm`, that goes on with the study
    grace_s = 10.0  # for a launcher to end its ranks, before it is killed
    signals: tuple[signal.Signals, ...] = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    restart = 0  # how often Slurm has started the job again

    def __init__(
        self, asked: Settings, common: list[str], lines: list[Line], keep_open: Sequence[int] = ()
    ) -> None:
        self.asked, self.common, self.lines = asked, common, lines
        self.steps = Steps(self.grace_s, keep_open)
        self.folder = asked.study_dir
        self.bench = [*asked.container, asked.python, "-m", "bench"]
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
        return self.asked.launcher == "mpirun" and "--hostfile" not in self.asked.launch_args

    def run_all(self) -> None:
        for number, line in enumerate(self.lines, 1):
            self._do(f"[{number}/{len(self.lines)}] {line.id}", line)

    def may_start(self, line: Line) -> bool:
        return self.steps.stopped is None

    def after_failure(self, ended: Ended, line: Line, log: Path, out: Path) -> None:
        if ended.code == 2:  # wrong input: all runs share it
            raise UsageError(f"{line.id}: {first_error(out)}")

    def launch(self, ranks: int) -> list[str]:
        program = os.environ.get("MPIRUN", "mpirun")
        return launcher.command("mpirun", ranks, program=program, args=self.asked.launch_args)

    def check_host(self, log: Path) -> None:
        """Raise UsageError where a run was made on another machine: a pair needs one."""
        elsewhere, this = set(read_run(log).hosts) - {socket.gethostname()}, socket.gethostname()
        if elsewhere and self.on_this_machine:
            rule = "a study stays on one machine; choose another --study-dir"
            raise UsageError(
                f"{log} was made on {', '.join(elsewhere)}, and this is {this}: {rule}"
            )

    def own_env(self, backend: str) -> list[str]:
        """Behind the launcher, which takes no part in it; the run log tells which they are."""
        own = self.asked.own_env
        if not own:
            return []
        if backend not in own:
            return ["env"]
        names = [word.partition("=")[0] for word in own[backend]]
        return ["env", f"BENCH_BACKEND_ENV={' '.join(names)}", *own[backend]]

    def _do(self, head: str, line: Line) -> None:
        log, out = (self.folder / "runs" / f"{line.id}.{end}" for end in ("jsonl", "out"))
        if is_ok(log):
            self.check_host(log)
            print(f"{head}: done before, skipped", flush=True)
            return
        if log.exists() and not self.restart:
            self.failed += 1
            again = f"rename it to do the run again ('python -m slurm {self.verb}' does)"
            print(f"{head}: its log exists but is not ok; {again}", flush=True)
            return
        if not self.may_start(line):
            self.left += 1
            if self.reason != "complete":
                print(f"{head}: left for the next job, {self.reason}", flush=True)
            return
        if log.exists():  # a job that Slurm starts again does what it has not finished
            StudyFolder.set_aside(log)
        self.begun += 1
        print(head, flush=True)
        ended = self._run(line, log, out)
        self.longest_s = max(self.longest_s, ended.wall_s)
        if ended.code == 0 and is_ok(log):
            return
        check_room(log.parent)
        if self.steps.stopped is not None:
            self.left += 1
        else:
            self.failed += 1
        print(f"{head}: exit code {ended.code} after {ended.wall_s} s, see {out}", flush=True)
        self.after_failure(ended, line, log, out)

    def _run(self, line: Line, log: Path, out: Path) -> Ended:
        before = oom_kills()
        command = [*self.launch(line.ranks), *self.own_env(line.backend), *self.bench]
        command += [*self.common, "--world-size", str(line.ranks), *line.options]
        command += ["--log-path", str(log)]
        # on one machine, for temporary files: mpirun kills what would have removed them
        own: AbstractContextManager[str | None] = nullcontext()
        if self.on_this_machine:
            prefix = temporary_prefix(self.folder)
            own = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        with own as folder:
            env = {**os.environ, "TMPDIR": folder} if folder else None
            ended = self.steps.wait(self.steps.start(command, out, self.asked.limit_s, env))
        self.close(log, out, ended, before)
        return ended

    def close(self, log: Path, out: Path, ended: Ended, before: int) -> None:
        close(
            log,
            out,
            ended,
            limit_s=self.asked.limit_s,
            stopped=self.steps.stopped is not None,
            oom_kills_before=before,
            session=self.session,
        )


def temporary_prefix(folder: Path) -> str:
    """How the temporary folders begin of this study's runs on this machine, and no other's."""
    return f"run-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]}-"


def remove_temporary(folder: Path) -> None:
    """Remove what a killed driver left; the lock says that no run of the study uses it now."""
    for left in Path(tempfile.gettempdir()).glob(f"{temporary_prefix(folder)}*"):
        shutil.rmtree(left, ignore_errors=True)


def first_error(out: Path) -> str:
    lines = out.read_text(errors="replace").splitlines()
    return next((line[7:] for line in lines if line.startswith("error: ")), "")


def complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
