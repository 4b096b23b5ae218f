"""python -m slurm COMMAND STUDY: from a study to run logs, and what has become of them."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from bench.missing import give_up

try:
    import typer

    from bench.called import command
    from bench.config import UsageError
    from bench.shell import Version, call, new_app
    from bench.study.disk import write_whole
    from bench.study.status import count, table
    from slurm import here, new_files, states, submit, waves
    from slurm.directives import REPORT, job_name, report_minutes
    from slurm.next_step import close, say_report
    from slurm.session import PREVIEW, StudyOptions, Work, open_work, with_options
    from slurm.states import JobState
except ModuleNotFoundError as absent:
    give_up(absent)

_COLOURS = {"ok": "green", "running": "cyan", "planned": None, "interrupted": "yellow"}  # else red

_RUNS = ("study", "site", "blocks", "results", "nodes", "time_limit_s")
_JOBS = (*_RUNS, "minutes", "account", "layout", "noise")
app = new_app("Turn a study into job scripts; run or submit them, follow and resume them.")
app.add_typer(new_files.site_app, name="site")
app.add_typer(new_files.study_app, name="study")


@app.callback()
def _slurm(version: Version = False) -> None: ...


@app.command()
@with_options(*_JOBS)
def render(
    options: StudyOptions,
    out: Annotated[Path | None, typer.Option(help="folder for all jobs of a cluster")] = None,
    job: Annotated[str | None, typer.Option(help="as n004-b00; default: the largest")] = None,
) -> None:
    """Print the job script of what is left to do.

    That is all runs which are not ok yet. Nothing is changed; the count, and an estimate or the
    price, go to stderr.
    """
    work = open_work(options)
    local = work.site.scheduler == "none"
    if local and (out or job or options.layout):
        rule = "--out, --job and --layout are for a cluster's jobs"
        raise UsageError(f"{rule}, and site {options.site!r} has one script; leave them out")
    _say(f"{work.study.name}: {work.launches}, {count(work.statuses)}")
    if work.preview:
        _say(PREVIEW)
    if local and work.todo:
        _say(f"this script: {len(work.todo)} runs, {work.estimate}")
        print(work.script(), end="")
    elif not local and work.jobs:
        _render_jobs(work, options.noise, out, job)


def _render_jobs(work: Work, noise: float | None, out: Path | None, only: str | None) -> None:
    from slurm.cost import lines

    jobs = {job.id: job for job in work.jobs}
    chosen = jobs.get(only) if only else max(jobs.values(), key=lambda job: (job.nodes, -job.block))
    if chosen is None:
        choice = ", ".join(jobs)
        raise UsageError(f"--job {only}: no such job is left to do; choose one of {choice}")
    scripts = {job.id: work.batch_script(job) for job in (jobs.values() if out else [chosen])}
    if out:
        scripts[REPORT] = work.report_script()
    _say("\n".join(lines(work, noise)))
    if out is None:
        _say(f"this script: {chosen.id}; --job names another, --out FOLDER writes all")
        print(scripts[chosen.id], end="")
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, script in scripts.items():
        write_whole(out / f"{work.study.name}-{name}.sh", script)
    _say(f"{len(scripts)} scripts in {out}")


@app.command()
@with_options(*_RUNS)
def run(
    options: StudyOptions,
    budget: Annotated[
        int | None,
        typer.Option(parser=waves.seconds, metavar="TIME", help="end within it: 90s, 15m, 1h30m"),
    ] = None,
) -> int:
    """Do the study's runs here, one after the other, and more launches until it is settled.

    After its `blocks` launches, and then after every two more, the verdict is looked at, until it
    is settled, `max_blocks` or the budget is reached. What failed, timed out or was interrupted is
    done again, with what it is compared with; earlier logs are kept as ID.attempt-1.jsonl.
    """
    from slurm.loop import Loop

    began = time.monotonic()
    work = open_work(options)  # every mistake comes out before anything is made
    if work.site.scheduler != "none":
        cure = f"use: {command('slurm')} submit {options.study} --site {options.site}"
        raise UsageError(f"site {options.site!r} hands out its nodes through Slurm; {cure}")
    if why := here.not_checkout():
        raise UsageError(why)
    work.folder.check_own()
    work.folder.check_way(slurm=False)
    here.find_launcher(work.site.hostfile)
    with work.folder.lock() as lock:
        work.folder.check_way(slurm=False)  # somebody may have submitted it meanwhile
        loop = Loop(options, lock, budget, began)
        loop.work()
    work = open_work(options)  # a run that outlived its job still holds the study
    if loop.launch_s is None and not (work.todo or loop.more):
        print(f"{count(work.statuses)}; nothing to do")
        say_report(work)
        return 0
    code = close(work, ["run", *options.words()], loop.stopped_by, loop.more)
    if not work.todo:
        say_report(work)
    return code


@app.command("submit")
@with_options(*_JOBS, cluster=True)
def submit_jobs(
    options: StudyOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print jobs and price only")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="submit no report job")] = False,
) -> None:
    """Submit a job for every block and node count of which runs are missing; also resumes.

    Where none is missing and a look does not settle the study, those of two more launches. The
    last job reports and does the same. Jobs in the queue are left alone, so the same command may be
    given again at any time.
    """
    from slurm.cost import lines

    work = open_work(options)
    not_shared = submit.not_shared(work.site, work.folder.path)
    why_not = [work.request.lacks_account, here.not_checkout(), not_shared]
    if dry_run:
        priced = replace(work.request, account=options.account or "ACCOUNT")
        submit.scripts(replace(work, request=priced))  # a forbidden option comes out all the same
    elif why := next(filter(None, why_not), ""):
        raise UsageError(why)
    else:
        submit.scripts(work)
    launches, why = submit.next_wave(work)
    if why:
        print(why)
        work = open_work(options, launches=launches)
    if work.jobs:
        print(*lines(work, options.noise), sep="\n")
        if not no_report:
            price = f"1 node, at most {report_minutes(work.site)} min"
            print(f"then, when all have ended, the report: {price} (--no-report leaves it out)")
    if dry_run:
        for why in filter(None, why_not):
            print(f"it would be refused: {why}")
        if work.preview:
            print(PREVIEW)
        print(f"dry run: nothing submitted; {count(work.statuses)}")
        return
    for line in submit.submit_missing(options, not no_report, launches):
        with suppress(OSError):  # a reader that has gone, as `head`, must not stop the submission
            print(line, flush=True)


again = "The same as submit: what is missing is submitted, what is in the queue is left alone."
app.command("resume", help=again)(submit_jobs)


@app.command()
@with_options(*_RUNS, cluster=True)
def wait(
    options: StudyOptions,
    poll_s: Annotated[float, typer.Option(min=0.1, help="seconds between looks at the queue")] = 10,
) -> int:
    """Follow the study's jobs until none is left in the queue; exit with 0 if every run is ok, else
    with 1.

    Nothing is submitted, so it may be ended and started again at any time; the jobs go on.
    """
    work = states.wait_for_jobs(options, poll_s)
    known = states.all_states(work)
    report = known.get(REPORT)
    if work.todo:  # why, as far as the jobs know
        _say_jobs(known)
    elif report is not None and report.state == states.REPORTED:
        output = work.folder.path / "jobs" / f"{job_name(work.study, REPORT)}-{report.id}.out"
        if output.exists():
            print(output.read_text(encoding="utf-8", errors="replace"), end="")  # the answer
    elif report is not None:
        print(f"{REPORT}  job {report.id}  {states.no_report(work, report)}")
    return close(work, ["resume", *options.words()])


@app.command()
@with_options("study", "site", "results", "nodes", cluster=True)
def cancel(options: StudyOptions) -> None:
    """Take the study's jobs out of the queue; running ones record where they stop."""
    print(*submit.cancel_all(options), sep="\n")


@app.command()
@with_options(*_RUNS)
def status(options: StudyOptions) -> None:
    """Print the state of every run, and under Slurm of every job.

    A run is planned, running, ok, failed, timed out, interrupted, out of memory, node lost or wrong
    world; it is ok if its own log proves it, and only then. Below a run that went wrong stand the
    last words of its ranks.
    """
    work = open_work(options)
    statuses = work.statuses
    if work.site.scheduler == "slurm":
        known = states.all_states(work)
        statuses = states.look_at_jobs(work, known)
        _say_jobs(known)
    for run_id, state, rest, words in table(statuses):
        padding = " " * (15 - len(state)) if rest else ""
        typer.echo(f"{run_id}  {typer.style(state, fg=_COLOURS.get(state, 'red'))}{padding}{rest}")
        for line in words:
            typer.echo(f"{' ' * (len(run_id) + 17)}{line}")
    print(f"{work.study.name}: {work.launches}, {count(statuses)}")
    if work.preview:
        print(PREVIEW)
    if work.site.scheduler == "none" and (why := here.not_one_machine(work)):
        print(f"note: {why}")
    if all(status.state == "planned" for status in statuses):
        print(f"no runs in {work.folder.path} yet; --results names another folder")


def _say_jobs(known: Mapping[str, JobState]) -> None:
    for name, job in sorted(known.items()):
        print(f"{name}  job {job.id}  {job.state}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Exit code: 0 done, 1 some runs are not ok, 2 the user's mistake, 128 + n by signal n."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # scripts are UTF-8, whatever the locale
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    return call(app, command("slurm"))


if __name__ == "__main__":
    sys.exit(main())
