"""Submit a study's missing jobs to Slurm's queue, the report's chained after them; cancel them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from bench.config import UsageError
from slurm import slurm_commands, states
from slurm.directives import REPORT, job_name
from slurm.fit import Job, job_of
from slurm.session import Work, open_work
from slurm.site import Site
from slurm.slurm_commands import Queued, UnknownIdError
from slurm.states import REPORTED, JobState
from slurm.until_settled import Standing, look

# in the environment, separated by ':': folders that all nodes see although they lie below such as
# /tmp, of which every node has its own
SHARED = "SHARED_FOLDERS"


def next_wave(work: Work) -> tuple[int, str]:
    """Choose the launches to submit up to, and say why: two more than were begun where all these
    are complete and a look does not settle the study.
    """
    if work.todo or not work.looks:
        return work.launches, ""
    words, settled = look(work.folder.path)
    standing = Standing(work.launches, work.launches, work.most, settled)
    return standing.decide()[0], standing.say(words)


def submit_missing(work: Work, report: bool = True) -> Iterator[str]:
    """Submit every job that is neither in the queue nor done, and with `report` one that reports
    when they have ended; lines to print, as it goes. Doing it again changes nothing.

    Where Slurm does not take a job, those before it stay and are reported on; then UsageError.
    """
    scripts(work)  # every mistake comes out before anything is made
    slurm_commands.find("sbatch")
    _require_queue(work)
    with work.folder.lock() as lock:
        # another submitter may have been faster, and its jobs too
        work = open_work(work.options, locked=True, launches=work.launches, earlier=work)
        texts, queue = scripts(work), _require_queue(work)
        _record_submitted(work, lock, queue)
        jobs = states.job_states(work, queue)
        work.folder.keep_study(work.text)
        (work.folder.path / "jobs").mkdir(exist_ok=True)
        before = jobs.pop(REPORT, JobState(REPORTED))
        after = [job.id for job in jobs.values() if job.in_progress]
        room = (work.site.limits.max_submitted or 10**6) - len(queue) + len(after)
        refusal = yield from _submit_each(work, lock, jobs, texts, after, room)
        if report and after:
            pending = before.id if before.state == "pending" else ""
            yield f"{REPORT}  {_chain(work, lock, after, pending, room - len(after))}"
        elif report and not before.in_progress and before.state != REPORTED:
            yield f"{REPORT}  {states.no_report(work, before)}"
        elif not work.jobs:
            yield f"all {len(work.statuses)} runs are ok; nothing to submit"
    if refusal:
        raise refusal


def _submit_each(
    work: Work,
    lock: IO[str],
    jobs: Mapping[str, JobState],
    texts: Mapping[str, str],
    after: list[str],
    room: int,
) -> Generator[str, None, UsageError | None]:
    """Submit what is not at work while fewer than `room` are, and add it to `after`."""
    refusal: UsageError | None = None
    for job in work.jobs:
        if (known := jobs.get(job.id)) is not None and known.in_progress:
            yield f"{job.id}  {known.state} as job {known.id}"
        elif len(after) >= room:
            rule = f"the site takes {work.site.limits.max_submitted} jobs of a user"
            yield f"{job.id}  not submitted: {rule}; submit again later"
        elif refusal is not None:
            yield f"{job.id}  not submitted"
        else:
            waits_for = after if work.site.policy.one_at_a_time else ()
            try:
                after.append(_submit(work, lock, job, texts[job.id], waits_for))
                yield f"{job.id}  submitted as job {after[-1]}, {len(job.runs)} runs"
            except UsageError as error:
                refusal = error
                silent = isinstance(error, UnknownIdError)
                yield f"{job.id}  {'submitted, id not known' if silent else 'not submitted'}"
    return refusal


def scripts(work: Work) -> dict[str, str]:
    """Render scripts of all jobs left to do, by id. Raises UsageError if the site will not do."""
    states.require_scheduler(work)
    work.folder.check_own()
    work.folder.check_way(slurm=True)
    return {job.id: work.batch_script(job) for job in work.jobs}


def not_shared(site: Site, results: Path) -> str:
    """Name what lies where every node of the site has a folder of its own; '' if nothing does."""
    needed = {"this folder": Path.cwd(), "the results folder": results}
    if site.setup.venv:
        needed["the environment"] = Path(site.setup.venv)
    shared = [Path(name) for name in os.environ.get(SHARED, "").split(os.pathsep) if name]
    for title, path in needed.items():
        whole = path.resolve()
        below = [top for top in site.paths.node_local if whole.is_relative_to(Path(top).resolve())]
        if below and not any(whole.is_relative_to(folder.resolve()) for folder in shared):
            return (
                f"{title} {whole} lies below {below[0]}, of which every node of site {site.name!r} "
                "has its own: its jobs would not find it; move it to a folder that all nodes see, "
                "or correct paths.node_local of the site file"
            )
    return ""


def cancel_all(work: Work) -> list[str]:
    """Take every job of the study out of the queue; lines to print.

    The report first: it would start once the others are gone, or submit more of them. These are
    looked up when nobody can submit any more.
    """
    states.require_scheduler(work)
    lines = []

    def cancel(report: bool) -> None:
        for name, job in sorted(states.all_states(work).items()):
            if job.in_progress and (name == REPORT) == report:
                running = job.state == "running" and not report  # a report has no run to record
                slurm_commands.cancel(job.id, running, work.site.access.clusters)
                done = "told to stop" if running else "taken out of the queue"
                lines.append(f"{name}  job {job.id} {done}")

    cancel(report=True)
    if work.folder.path.exists():
        with work.folder.lock():
            cancel(report=False)
    return lines or ["no job of this study is in the queue"]


def _require_queue(work: Work) -> list[Queued]:
    if (queue := slurm_commands.queue(work.site.access.clusters)) is None:
        rule = "without it a job might be submitted twice; try again later"
        raise UsageError(f"squeue does not answer, and {rule}")
    return queue


def _submit(work: Work, lock: IO[str], job: Job, text: str, after: Sequence[str]) -> str:
    states = {status.run.id: status.state for status in work.statuses}
    for run in job.runs:
        if states[run.id] != "planned":
            work.folder.set_aside(run.log)
    script = work.folder.add_script(text, job.id)
    job_id = slurm_commands.submit(script, work.folder.path / "jobs", lock, after)
    _record(work, lock, script, job.id, job_id, len(job.runs))
    return job_id


def _record(
    work: Work, lock: IO[str], script: Path, job: str, job_id: str, runs: int, **more: object
) -> None:
    named = {"runs": runs, "job": job, "slurm_id": job_id}
    work.folder.record_job(lock, script, **work.facts, **named, **more)


def _chain(work: Work, lock: IO[str], after: Sequence[str], pending: str, room: int) -> str:
    """Have the report made once the jobs `after` have ended, however they end; return a line on it.

    The `pending` one, if there is any, stays if it waits for all of them; else it is replaced.
    """
    waits_for = {entry.slurm_id: set(entry.after) for entry in work.folder.read_jobs()}
    if pending and set(after) <= waits_for.get(pending, set()):
        return f"pending as job {pending}"
    try:
        if room + bool(pending) <= 0:
            most = work.site.limits.max_submitted
            raise UsageError(f"the site takes {most} jobs of a user")
        script = work.folder.add_script(work.report_script(), REPORT)
        if pending:
            slurm_commands.cancel(pending, False, work.site.access.clusters)
        job_id = slurm_commands.submit(script, work.folder.path / "jobs", lock, after)
    except UnknownIdError as error:
        return str(error)
    except (UsageError, OSError) as error:  # the jobs that measure are in the queue, and stay there
        reason = " ".join(str(error).split())
        cure = f"when they have ended: python -m plots report {work.folder.path}"
        return f"not submitted: {reason}; {cure}"
    _record(work, lock, script, REPORT, job_id, 0, after=list(after))
    return f"submitted as job {job_id}, after {len(after)} job{'s' if len(after) > 1 else ''}"


def _record_submitted(work: Work, lock: IO[str], queue: Sequence[Queued]) -> None:
    """Record queued jobs of ours whose id nobody wrote down: a kill came after sbatch, or it said
    none.
    """
    recorded = {entry.slurm_id for entry in work.folder.read_jobs()}
    runs = Counter(job_of(status.run, work.site) for status in work.statuses)
    names = {job_name(work.study, name): name for name in (*runs, REPORT)}
    for queued in queue:
        script, name = Path(queued.command), names.get(queued.name)
        kept_here = script.parent.resolve() == work.folder.path.resolve()
        if name is not None and kept_here and queued.id not in recorded:
            _record(work, lock, script, name, queued.id, runs[name])
