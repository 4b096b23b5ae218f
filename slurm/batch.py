"""Jobs in Slurm's queue: submit what is missing, say what has become of each, take them back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.config import UsageError
from slurm import submit
from slurm.fit import Job, jobs
from slurm.folder import StudyFolder
from slurm.request import job_name
from slurm.status import RunStatus, look
from slurm.submit import Queued
from slurm.work import Asked, Work, open_work

_IN_PROGRESS = ("submitted", "pending", "running")


@dataclass(frozen=True)
class JobState:
    """What has become of one job: not submitted, submitted, pending, running, or how it ended.

    No such word makes a run ok: only the run's own log does.
    """

    state: str
    id: str = ""

    @property
    def in_progress(self) -> bool:
        return self.state in _IN_PROGRESS


def submit_missing(asked: Asked) -> list[str]:
    """Submit every job that is neither in the queue nor done; lines to print. Doing it again changes nothing."""
    work = open_work(asked)
    require_scheduler(work)
    scripts = {job.id: work.batch_script(job) for job in work.jobs}  # every mistake comes out before anything is made
    submit.find_sbatch()
    lines = []
    with work.folder.lock() as lock:
        queue = submit.queue()
        if queue is None:
            raise UsageError("squeue does not answer, and without it a job might be submitted twice; try again later")
        _adopt(work, lock, queue)
        states = job_states(work.folder, queue)
        work.folder.keep_study(work.text)
        (work.folder.path / "jobs").mkdir(exist_ok=True)
        room = (work.request.site.limits.max_submitted or 10**6) - len(queue)
        for job in work.jobs:
            known = states.get(job.id, JobState("not submitted"))
            if known.in_progress:
                lines.append(f"{job.id}  {known.state} as job {known.id}")
            elif room <= 0:
                most = work.request.site.limits.max_submitted
                lines.append(f"{job.id}  not submitted: the site takes {most} jobs of a user; resume later")
            else:
                lines.append(f"{job.id}  submitted as job {_submit(work, lock, job, scripts[job.id])}, {len(job.runs)} runs")
                room -= 1
    return lines or [f"all {len(work.statuses)} runs are ok; nothing to submit"]


def require_scheduler(work: Work) -> None:
    """Raise UsageError at a site whose scripts run where they are started."""
    site = work.request.site
    if site.scheduler != "slurm":
        raise UsageError(
            f"site {site.name!r} has no scheduler; run the study there: python -m slurm run {work.study.name} --site {site.name}"
        )


def _submit(work: Work, lock: Any, job: Job, text: str) -> str:
    states = {status.run.id: status.state for status in work.statuses}
    for run in job.runs:
        if states[run.id] != "planned":
            work.folder.set_aside(run.log)
    script = work.folder.add_script(text, job.id)
    job_id = submit.submit(script, work.folder.path / "jobs")
    work.folder.record_job(lock, script, blocks=work.blocks, runs=len(job.runs), job=job.id, slurm_id=job_id)
    return job_id


def _adopt(work: Work, lock: Any, queue: Sequence[Queued]) -> None:
    """Record jobs of ours that are queued but not on record: we were killed between sbatch and the record."""
    recorded = {str(entry.get("slurm_id")) for entry in work.folder.read_jobs()}
    names = {job_name(work.study, job): job for job in work.jobs}
    for queued in queue:
        if (job := names.get(queued.name)) is not None and queued.id not in recorded:
            script = work.folder.last_script(job.id)
            work.folder.record_job(lock, script, blocks=work.blocks, runs=len(job.runs), job=job.id, slurm_id=queued.id)


def job_states(folder: StudyFolder, queue: Sequence[Queued] | None) -> dict[str, JobState]:
    """State of every job that was submitted, by us or by hand, the last time it was; `queue` None: Slurm cannot be asked."""
    last = {str(entry["job"]): str(entry["slurm_id"]) for entry in folder.read_jobs() if "slurm_id" in entry}
    for path in (folder.path / "jobs").glob("*.jsonl"):
        by_hand = max((int(event["job"]) for event in _events(path)), default=0)  # Slurm's numbers rise
        if by_hand > int(last.get(path.stem, 0)):
            last[path.stem] = str(by_hand)
    gone = [job_id for job_id in last.values() if queue is not None and all(q.id != job_id for q in queue)]
    accounts = submit.accounted(gone) if gone else {}
    return {job: JobState(_state(job_id, _said(folder, job, job_id), queue, accounts), job_id) for job, job_id in last.items()}


def _state(job_id: str, said: Sequence[Mapping[str, Any]], queue: Sequence[Queued] | None, accounts: Mapping[str, str]) -> str:
    """The queue's word first, then the job's own, then the accounts'; a job that nobody knows has vanished."""
    queued = next((q.state.lower() for q in queue or () if q.id == job_id), None)
    if queued:
        return "pending" if queued == "pending" else "running"
    if said and said[-1]["event"] == "end":
        return f"ended: {said[-1].get('reason', '')}"
    if queue is None:
        return "running" if said else "submitted"
    if job_id in accounts:
        return f"ended: {accounts[job_id]}"
    return "vanished: " + ("it began and left no end" if said else "it never began")


def _said(folder: StudyFolder, job: str, job_id: str) -> list[dict[str, Any]]:
    """What a job wrote of itself, for this id alone."""
    return [event for event in _events(folder.path / "jobs" / f"{job}.jsonl") if event["job"] == job_id]


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # torn by a kill
            continue
        if isinstance(event, dict) and str(event.get("job", "")).isdecimal() and "event" in event:
            found.append({**event, "job": str(event["job"])})
    return found


def look_at_jobs(work: Work, states: Mapping[str, JobState]) -> list[RunStatus]:
    """States of the runs, where an unfinished one is running only while its own job is."""
    by_run = {run.id: states.get(job.id) for job in jobs([s.run for s in work.statuses], work.request.site) for run in job.runs}
    found = []
    for status in work.statuses:
        job = by_run[status.run.id] or JobState("not submitted")
        found.append(look(status.run, job.state == "running", "" if job.in_progress or not job.id else job.state))
    return found


def cancel_all(asked: Asked) -> list[str]:
    """Take every job of the study out of the queue; lines to print."""
    work = open_work(asked)
    require_scheduler(work)
    lines = []
    for job, known in sorted(job_states(work.folder, submit.queue()).items()):
        if known.in_progress:
            submit.cancel(known.id, known.state == "running")
            lines.append(f"{job}  job {known.id} " + ("told to stop" if known.state == "running" else "taken out of the queue"))
    return lines or ["no job of this study is in the queue"]
