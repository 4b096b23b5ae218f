"""python -m slurm render | run | status STUDY: from a study to run logs, and what has become of them."""

from __future__ import annotations

import shlex
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.config import UsageError
from slurm import submit
from slurm.folder import StudyFolder
from slurm.load import find_study, read_site, read_study
from slurm.plan import Run, plan
from slurm.render import render_job
from slurm.site import Site
from slurm.status import RunStatus, count, duration, look, seconds_left, table
from slurm.study import Study

_COLOURS = {"ok": "green", "running": "cyan", "planned": None, "failed": "red", "timed out": "red", "interrupted": "yellow"}

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="a study file, or the name of a shipped study")]
SiteOption = Annotated[str, typer.Option(help="where to run: the name of a file in slurm/sites")]
BlocksOption = Annotated[
    int | None, typer.Option(min=1, help="blocks in all; default: as many as the study plans, or as were added before")
]
ResultsOption = Annotated[Path, typer.Option(help="folder that holds one folder per study")]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Turn a study into job scripts; run, follow and resume them.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True)
class _Job:
    """What all commands work on: a study at a site, its folder, and the state of its runs."""

    source: Path
    study: Study
    site: Site
    folder: StudyFolder
    blocks: int
    statuses: list[RunStatus]

    @property
    def todo(self) -> list[Run]:
        return [status.run for status in self.statuses if status.state != "ok"]

    @property
    def estimate(self) -> str:
        return duration(seconds_left(self.todo, self.statuses, self.study.expected_run_s))

    def script(self) -> str:
        return render_job(self.study, self.source.read_text(), self.site, self.todo, self.folder.path)


def _job(name: str, site: str, blocks: int | None, results: Path, locked: bool = False) -> _Job:
    source = find_study(name)
    study = read_study(source)
    folder = StudyFolder(_short(results), study)
    folder.check_same(study)
    blocks = blocks or folder.asked_blocks(study)
    job_is_running = not locked and folder.is_locked()
    runs = [run for block in plan(study, blocks, folder.runs) for run in block]
    return _Job(source, study, read_site(site), folder, blocks, [look(run, job_is_running) for run in runs])


def _short(path: Path) -> Path:
    """Relative to where we are if it lies below: job scripts and logs then hold no path of this machine."""
    return path.resolve().relative_to(Path.cwd()) if path.resolve().is_relative_to(Path.cwd()) else path


@app.command()
def render(
    study: StudyArgument, site: SiteOption = "local", blocks: BlocksOption = None, results: ResultsOption = Path("results")
) -> None:
    """Print the job script of what is left to do.

    That is all runs which are not ok yet. Nothing is changed; the count and an estimate go to stderr.
    """
    job = _job(study, site, blocks, results)
    _say(f"{job.study.name}: {job.blocks} blocks, {count(job.statuses)}")
    if job.todo:
        _say(f"this script: {len(job.todo)} runs, {job.estimate}")
        print(job.script(), end="")


@app.command()
def run(
    study: StudyArgument, site: SiteOption = "local", blocks: BlocksOption = None, results: ResultsOption = Path("results")
) -> int:
    """Do all runs that are not ok yet, one after the other.

    What failed, timed out or was interrupted before is done again; its logs are kept as ID.attempt-1.jsonl.
    """
    _job(study, site, blocks, results)  # every mistake comes out before anything is made
    submit.find_launcher()
    with StudyFolder(_short(results), read_study(find_study(study))).lock() as lock:
        job = _job(study, site, blocks, results, locked=True)
        _check_machine(job)
        job.folder.keep_study(job.source)
        if not job.todo:
            print(f"{count(job.statuses)}; nothing to do")
            return 0
        for status in job.statuses:
            if status.state not in ("ok", "planned"):
                job.folder.set_aside(status.run.log)
        script = job.folder.add_job(lock, job.script(), job.blocks, len(job.todo))
        print(f"{script}: {len(job.todo)} runs, {job.estimate}", flush=True)
        stopped_by = submit.execute(script, lock, job.statuses, job.todo, job.study.expected_run_s)
        again = ["run", study, "--site", site] + ([] if results == Path("results") else ["--results", str(results)])
        return _close(_job(study, site, blocks, results, locked=True), shlex.join(again), stopped_by)


def _check_machine(job: _Job) -> None:
    """Raise UsageError where the folder's runs were made elsewhere: blocks of two machines are not one study."""
    here = socket.gethostname()
    elsewhere = {host for status in job.statuses for host in status.hosts} - {here}
    if elsewhere:
        raise UsageError(
            f"{job.folder.path} holds runs made on {', '.join(sorted(elsewhere))}, and this is {here}: a study stays on one "
            "machine; choose another --results"
        )


def _close(job: _Job, again: str, stopped_by: int | None) -> int:
    """Say how it ended and what goes on with it; 0 if every run is ok."""
    print(f"{job.study.name}: {count(job.statuses)}")
    for status in job.statuses:
        if status.state not in ("ok", "planned"):
            print(f"  {status.run.id}: {status.state}  {status.reason}".rstrip())
    if job.todo:
        print(f"go on with the same command, or: {Path(sys.executable).name} -m slurm {again}")
    if stopped_by is not None:
        return 128 + stopped_by
    return 1 if job.todo else 0


@app.command()
def status(
    study: StudyArgument, site: SiteOption = "local", blocks: BlocksOption = None, results: ResultsOption = Path("results")
) -> None:
    """Print the state of every run.

    A run is planned, running, ok, failed, timed out or interrupted.
    """
    job = _job(study, site, blocks, results)
    for run_id, state, rest in table(job.statuses):
        padding = " " * (13 - len(state)) if rest else ""
        typer.echo(f"{run_id}  {typer.style(state, fg=_COLOURS[state])}{padding}{rest}")
    print(f"{job.study.name}: {job.blocks} blocks ({job.folder.planned_blocks(job.study)} planned), {count(job.statuses)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Exit code: 0 done, 1 some runs are not ok, 2 the user's mistake in one line, 128 + n stopped by signal n."""
    try:
        return app(standalone_mode=False) or 0
    except typer.Abort:  # Ctrl-C before a job was started: nothing has been changed
        return 130
    except (UsageError, OSError, typer.TyperException) as error:
        _say(f"error: {_one_line(error)}")
        return 2


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if isinstance(error, UsageError):
        return " ".join(str(error).split())
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(message.split()).rstrip(".") + "; see python -m slurm --help"


if __name__ == "__main__":
    sys.exit(main())
