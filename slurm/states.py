"""States of a study's jobs, from Slurm's queue, the jobs' own diaries and Slurm's accounts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from bench.config import UsageError
from bench.record.archive import read_file
from bench.study.folder import JobEvent, read_lines
from bench.study.status import RunStatus, look
from slurm import slurm_commands
from slurm.fit import job_of
from slurm.session import StudyOptions, Work, open_work
from slurm.slurm_commands import Queued

_COMING = ("planned", "running", "interrupted")  # runs that a job may still bring to an end
REPORTED = "ended: complete"  # the state of a job that came to its end
_IN_PROGRESS = ("running", "pending", "submitted")


class JobState(NamedTuple):
    """A job's id in Slurm, and its state: submitted, pending, running, or how the job ended."""

    state: str
    id: str = ""

    @property
    def in_progress(self) -> bool:
        return self.state in _IN_PROGRESS


def require_scheduler(work: Work) -> None:
    """Raise UsageError if the site does not hand out its nodes through Slurm."""
    if work.site.scheduler != "slurm":
        cure = f"python -m slurm run {work.study.name} --site {work.site.name}"
        raise UsageError(f"site {work.site.name!r} has no scheduler; run the study there: {cure}")


def all_states(work: Work) -> dict[str, JobState]:
    """Return the state of each submitted job of the study by its name, such as n004-launch00."""
    return job_states(work, slurm_commands.queue(work.site.access.clusters))


def job_states(work: Work, queue: Sequence[Queued] | None) -> dict[str, JobState]:
    """Return the state of each job's last submission by name; `queue` is None if squeue failed."""
    last = {entry.job: entry.slurm_id for entry in work.folder.read_jobs() if entry.slurm_id}
    queued = {q.id: q.state.lower() for q in queue or ()}
    gone = [job_id for job_id in last.values() if queue is not None and job_id not in queued]
    accounts = slurm_commands.accounted(gone, work.site.access.clusters)
    states = {}
    for job, job_id in last.items():
        events: list[JobEvent] = []
        with suppress(OSError, UsageError):  # then the queue and the accounts speak
            spoken = read_lines(JobEvent, read_file(work.folder.path / "jobs" / f"{job}.jsonl"))
            events = [event for event in spoken if event.job == job_id]
        if job_id in queued:
            state = "pending" if queued[job_id] == "pending" else "running"
        elif events and events[-1].event == "end":
            state = f"ended: {events[-1].reason}"
        elif queue is None:
            state = "running" if events else "submitted"
        elif job_id in accounts:
            state = f"ended: {accounts[job_id]}"
        else:
            state = "vanished: " + ("it began and left no end" if events else "it never began")
        states[job] = JobState(state, job_id)
    return states


def no_report(work: Work, report: JobState) -> str:
    """Return words on how a report job ended without a report, and on the command to make one."""
    return f"{report.state}; make it here: python -m plots report {work.folder.path}"


def look_at_jobs(work: Work, states: Mapping[str, JobState]) -> list[RunStatus]:
    """Return the states of all runs; a run without an end is running only while its job is.

    A job that is not in `states` counts as running: it may have been submitted by hand.
    """
    statuses = []
    may_change = {run.id for run in work.todo}  # of those that are ok: done again with a partner
    for status in work.statuses:
        if status.run.id in may_change:
            job = states.get(job_of(status.run, work.site), JobState("running"))
            ended = "" if job.in_progress else job.state
            status = look(status.run, job.state == "running", ended)
        statuses.append(status)
    return statuses


def wait_for_jobs(options: StudyOptions, poll_s: float) -> Work:
    """Wait until no job of the study is queued, and print each change; return the last `Work`.

    The wait includes jobs that Slurm restarts, launches that the report job adds, and times when
    squeue does not answer. Raises UsageError if the site has no Slurm.
    """
    work, last = open_work(options), ""
    require_scheduler(work)
    slurm_commands.find("squeue")
    while True:
        queue = slurm_commands.queue(work.site.access.clusters)
        states = job_states(work, queue)
        if work.looks and work.folder.asked_launches(work.study) > work.launches:
            work = open_work(options)
        work = replace(work, statuses=look_at_jobs(work, states))
        jobs = Counter(known.state for known in states.values() if known.in_progress)
        if queue is not None and not jobs:
            return work
        runs = Counter(status.state for status in work.statuses)
        failed = sum(runs.values()) - sum(runs[state] for state in ("ok", *_COMING))
        parts = [f"{jobs[state]} {state}" for state in _IN_PROGRESS if jobs[state]]
        parts += [f"{failed} runs failed"] if failed else []  # await another submission
        parts += [] if queue is not None else ["squeue does not answer"]
        line = f"{runs['ok']}/{len(work.statuses)} runs done, jobs: {', '.join(parts)}"
        if line != last:
            print(line, flush=True)
        last = line
        time.sleep(poll_s)
