"""python -m slurm render | run | submit | wait | status | cancel STUDY: from a study to run logs,
and what has become of them.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from bench import version
from bench.missing import give_up

try:
    import typer

    from bench.config import UsageError
    from bench.study.definition import MAX_BLOCKS, MAX_SECONDS
    from bench.study.disk import write_whole
    from bench.study.folder import RESULTS
    from bench.study.status import count, table
    from slurm import slurm_commands, submit
    from slurm.directives import REPORT, report_minutes
    from slurm.session import Asked, Work, open_work, parse_nodes, short
    from slurm.tables import Layout
except ModuleNotFoundError as absent:
    give_up(absent)

# in the environment: the command that goes on with a study, where it is not this one
GO_ON = "STUDY_GO_ON"
_COLOURS = {
    "ok": "green",
    "running": "cyan",
    "planned": None,
    "interrupted": "yellow",
}  # any other is red

StudyArgument = Annotated[
    str, typer.Argument(metavar="STUDY", help="a study file, or the name of a shipped study")
]
SiteOption = Annotated[
    str,
    typer.Option(help="where to run: the name of a file in slurm/sites, or the path of your own"),
]
BlocksOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_BLOCKS,
        help="blocks in all; default: as many as the study plans, or as were added before",
    ),
]


def _results(text: str | Path) -> Path:
    if not str(text):
        raise UsageError(f"--results is empty; name a folder, or leave it out: {RESULTS}")
    return Path(text)


ResultsOption = Annotated[
    Path,
    typer.Option(help="folder that holds one folder per study", parser=_results, metavar="FOLDER"),
]
NodesOption = Annotated[
    str | None, typer.Option(metavar="1,2,4", help="node counts, instead of those of the study")
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_SECONDS, help="seconds a run may take, instead of the study's"),
]
MinutesOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=MAX_SECONDS // 60, help="minutes each job asks for; default: as it needs"
    ),
]
LayoutOption = Annotated[
    Layout | None,
    typer.Option(
        help="'blocks': a job for each node count; 'single': one for all of a block; default: the "
        "site's",
        show_default=False,
    ),
]
AccountOption = Annotated[
    str, typer.Option(help="project that is charged, where the site wants one")
]
NoiseOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=10,
        help="paired sd to price with, 0.01 is 1 %; default: measured, else the site's",
        show_default=False,
    ),
]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Turn a study into job scripts; run or submit them, follow and resume them.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
site_app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Describe a cluster.", no_args_is_help=False
)
app.add_typer(site_app, name="site")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(version())
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", help="print the version and stop", callback=_show_version, is_eager=True
    ),
]


@app.callback()
def _slurm(show_version: VersionOption = False) -> None: ...


@app.command()
def render(
    study: StudyArgument,
    site: SiteOption = "local",
    blocks: BlocksOption = None,
    results: ResultsOption = RESULTS,
    nodes: NodesOption = None,
    time_limit_s: LimitOption = None,
    minutes: MinutesOption = None,
    account: AccountOption = "",
    layout: LayoutOption = None,
    noise: NoiseOption = None,
    out: Annotated[
        Path | None, typer.Option(help="folder to write all jobs of a cluster to")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="the job of a cluster to print, as in n004-b00; default: the largest"),
    ] = None,
) -> None:
    """Print the job script of what is left to do.

    That is all runs which are not ok yet. Nothing is changed; the count, and an estimate or the
    price, go to stderr.
    """
    work = open_work(
        Asked(study, site, results, blocks, _nodes(nodes), time_limit_s, minutes, account, layout)
    )
    if work.request.site.scheduler == "slurm":
        _render_jobs(work, noise, out, job)
        return
    if out or job or layout:
        raise UsageError(
            f"--out, --job and --layout are for a cluster's jobs, and site {site!r} has one "
            f"script; leave them out"
        )
    _say(f"{work.study.name}: {work.blocks} blocks, {count(work.statuses)}")
    if work.todo:
        _say(f"this script: {len(work.todo)} runs, {work.estimate}")
        print(work.script(), end="")


def _render_jobs(work: Work, noise: float | None, out: Path | None, only: str | None) -> None:
    _say(f"{work.study.name}: {work.blocks} blocks, {count(work.statuses)}")
    jobs = {job.id: job for job in work.jobs}
    if not jobs:
        return
    chosen = jobs.get(only) if only else max(jobs.values(), key=lambda job: (job.nodes, -job.block))
    if chosen is None:
        raise UsageError(
            f"--job {only}: no such job is left to do; choose one of {', '.join(jobs)}"
        )
    scripts = {job.id: work.batch_script(job) for job in (jobs.values() if out else [chosen])}
    scripts |= {REPORT: work.report_script()} if out else {}
    from slurm.cost import lines

    for line in lines(work, noise):
        _say(line)
    if out is None:
        _say(f"this script: {chosen.id}; --job names another, --out FOLDER writes all")
        print(scripts[chosen.id], end="")
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, script in scripts.items():
        write_whole(out / f"{work.study.name}-{name}.sh", script)
    _say(f"{len(scripts)} scripts in {out}")


@app.command()
def run(
    study: StudyArgument,
    site: SiteOption = "local",
    blocks: BlocksOption = None,
    results: ResultsOption = RESULTS,
    nodes: NodesOption = None,
    time_limit_s: LimitOption = None,
) -> int:
    """Do all runs that are not ok yet, one after the other, here.

    What failed, timed out or was interrupted before is done again; its logs are kept as
    ID.attempt-1.jsonl.
    """
    asked = Asked(study, site, results, blocks, _nodes(nodes), time_limit_s)
    work = open_work(asked)  # every mistake comes out before anything is made
    if work.request.site.scheduler != "none":
        raise UsageError(
            f"site {site!r} hands out its nodes through Slurm; use: python -m slurm submit "
            f"{study} --site {site}"
        )
    work.folder.check_own()
    slurm_commands.find_launcher(work.request.site.hostfile)
    with work.folder.lock() as lock:
        work = open_work(asked, locked=True)
        _check_machine(work)
        work.folder.keep_study(work.text)
        if not work.todo:
            print(f"{count(work.statuses)}; nothing to do")
            return 0
        for status in work.statuses:
            if status.state not in ("ok", "planned"):
                work.folder.set_aside(status.run.log)
        site_name = work.request.site.name
        script = work.folder.add_job(
            lock, work.script(), site=site_name, blocks=work.blocks, runs=len(work.todo)
        )
        print(
            f"{work.study.name}: {len(work.todo)} runs on {work.request.site.title}, "
            f"{work.estimate}; {script}",
            flush=True,
        )
        stopped_by = slurm_commands.execute(
            script, lock, work.statuses, work.todo, work.study.expected_run_s
        )
        return _close(
            open_work(asked, locked=True), shlex.join(["run", *asked.words()]), stopped_by
        )


def _check_machine(work: Work) -> None:
    """Raise UsageError where the folder's runs were made elsewhere: blocks of two machines are not
    one study.
    """
    if work.request.site.hostfile:
        return
    here = socket.gethostname()
    elsewhere = {host for status in work.statuses for host in status.hosts} - {here}
    if elsewhere:
        raise UsageError(
            f"{work.folder.path} holds runs made on {', '.join(sorted(elsewhere))}, and this is "
            f"{here}: a study stays on one "
            "machine; choose another --results"
        )


def _close(work: Work, again: str, stopped_by: int | None) -> int:
    """Say how it ended and what goes on with it; 0 if every run is ok."""
    print(f"{work.study.name}: {count(work.statuses)}")
    for status in work.statuses:
        if status.state not in ("ok", "planned"):
            print(f"  {status.run.id}: {status.state}  {status.reason}".rstrip())
    if work.todo:
        print(f"go on with: {os.environ.get(GO_ON) or f'{_python()} -m slurm {again}'}")
    if stopped_by is not None:
        return 128 + stopped_by
    return 1 if work.todo else 0


def _python() -> str:
    """This Python as it is started from here: by its name if that finds it, else by its path."""
    name = Path(sys.executable).name
    return (
        name
        if shutil.which(name) == sys.executable
        else shlex.quote(str(short(Path(sys.executable), follow=False)))
    )


@app.command("submit")
def submit_jobs(
    study: StudyArgument,
    site: SiteOption,
    blocks: BlocksOption = None,
    results: ResultsOption = RESULTS,
    nodes: NodesOption = None,
    time_limit_s: LimitOption = None,
    minutes: MinutesOption = None,
    account: AccountOption = "",
    layout: LayoutOption = None,
    noise: NoiseOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print jobs and price; submit nothing")
    ] = False,
    no_report: Annotated[
        bool,
        typer.Option("--no-report", help="submit no job that reports when the others have ended"),
    ] = False,
) -> None:
    """Submit a job for every block and node count of which runs are missing; also resumes.

    Jobs in the queue are left alone, so the same command may be given again at any time.
    """
    asked = Asked(
        study, site, results, blocks, _nodes(nodes), time_limit_s, minutes, account, layout
    )
    work = open_work(asked)
    submit.scripts(work)  # a missing account or a forbidden option comes out before the price
    from slurm.cost import lines

    for line in lines(work, noise) if work.jobs else []:
        print(line)
    if work.jobs and not no_report:
        most = report_minutes(work.request.site)
        print(
            f"then, when all have ended, the report: 1 node, at most {most} min (--no-report "
            f"leaves it out)"
        )
    if dry_run:
        print(f"dry run: nothing submitted; {count(work.statuses)}")
        return
    try:
        said = submit.submit_missing(asked, not no_report)
    except submit.Refused as refused:
        print(*refused.lines, sep="\n", flush=True)
        raise
    print(*said, sep="\n", flush=True)


app.command(
    "resume",
    help="The same as submit: what is missing is submitted, what is in the queue is left alone.",
)(submit_jobs)


@app.command()
def wait(
    study: StudyArgument,
    site: SiteOption,
    blocks: BlocksOption = None,
    results: ResultsOption = RESULTS,
    nodes: NodesOption = None,
    time_limit_s: LimitOption = None,
    poll_s: Annotated[
        float, typer.Option(min=0.1, help="seconds between two looks at the queue")
    ] = 10,
) -> int:
    """Follow the study's jobs until none is left in the queue; exit with 0 if every run is ok, else
    with 1.

    Nothing is submitted, so it may be ended and started again at any time; the jobs go on.
    """
    asked = Asked(study, site, results, blocks, _nodes(nodes), time_limit_s)
    work = submit.wait_for_jobs(asked, poll_s)
    states = submit.all_states(work)
    report = states.get(REPORT)
    if work.todo:  # why, as far as the jobs know
        _say_jobs(states)
    elif report is not None and report.state != submit.REPORTED:
        print(
            f"{REPORT}  job {report.id}  {report.state}; make it here: python -m plots report "
            f"{work.folder.path}"
        )
    elif report is not None:
        print(submit.said_by(work, REPORT, report), end="")  # the answer
    return _close(work, shlex.join(["resume", *asked.words()]), None)


@app.command()
def cancel(
    study: StudyArgument,
    site: SiteOption,
    results: ResultsOption = RESULTS,
    nodes: NodesOption = None,
) -> None:
    """Take the study's jobs out of the queue; running ones record where they stop."""
    for line in submit.cancel_all(Asked(study, site, results, nodes=_nodes(nodes))):
        print(line)


@app.command()
def status(
    study: StudyArgument,
    site: SiteOption = "local",
    blocks: BlocksOption = None,
    results: ResultsOption = RESULTS,
    nodes: NodesOption = None,
    time_limit_s: LimitOption = None,
) -> None:
    """Print the state of every run, and under Slurm of every job.

    A run is planned, running, ok, failed, timed out, interrupted, out of memory, node lost or wrong
    world; it is ok if its own log proves it, and only then. Below a run that went wrong stand the
    last words of its ranks.
    """
    work = open_work(Asked(study, site, results, blocks, _nodes(nodes), time_limit_s))
    statuses = work.statuses
    if work.request.site.scheduler == "slurm":
        states = submit.all_states(work)
        statuses = submit.look_at_jobs(work, states)
        _say_jobs(states)
    for run_id, state, rest, words in table(statuses):
        padding = " " * (15 - len(state)) if rest else ""
        typer.echo(f"{run_id}  {typer.style(state, fg=_COLOURS.get(state, 'red'))}{padding}{rest}")
        for line in words:
            typer.echo(f"{' ' * (len(run_id) + 17)}{line}")
    print(
        f"{work.study.name}: {work.blocks} blocks ({work.folder.planned_blocks(work.study)} "
        f"planned), {count(statuses)}"
    )
    if all(status.state == "planned" for status in statuses):
        print(f"no runs in {work.folder.path} yet; --results names another folder")


def _say_jobs(states: Mapping[str, submit.JobState]) -> None:
    for job, known in sorted(states.items()):
        print(f"{job}  job {known.id}  {known.state}")


@site_app.command("new")
def new_site(
    name: Annotated[str, typer.Argument(metavar="NAME", help="short name of the cluster")],
) -> None:
    """Write NAME.toml, every key explained, filled in from sinfo and scontrol where they are."""
    from slurm.new_site import write_skeleton

    path = write_skeleton(name)
    print(f"{path} written; correct it, then: python -m slurm submit weak --site {path} --dry-run")


def _nodes(text: str | None) -> tuple[int, ...]:
    return () if text is None else parse_nodes(text)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Exit code: 0 done, 1 some runs are not ok, 2 the user's mistake in one line, 128 + n stopped
    by signal n.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # scripts are UTF-8, whatever the locale
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        return app(standalone_mode=False) or 0
    except typer.Abort:  # Ctrl-C before a job was started: nothing has been changed
        return 130
    except ModuleNotFoundError as absent:  # some are loaded only where they are needed
        give_up(absent)
    except (UsageError, OSError, typer.TyperException) as error:
        _say(f"error: {_one_line(error)}")
        return 2


_MOST_CHARACTERS = 800


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    elif isinstance(error, UsageError):
        text = str(error)
    else:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        text = message.replace("Value error, ", "").rstrip(". \n") + "; see python -m slurm --help"
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    half = _MOST_CHARACTERS // 2  # a file may hold a value of any length
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:half]} ... {line[-half:]}"


if __name__ == "__main__":
    sys.exit(main())
