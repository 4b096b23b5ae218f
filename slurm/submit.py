"""Jobs in Slurm's queue: submit what is missing, say what has become of each, wait for them, take
them back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.study.folder import StudyFolder
from bench.study.jobs import JobEvent, read_events
from bench.study.status import RunStatus, look, seconds_left
from slurm import slurm_commands
from slurm.chain import chain
from slurm.directives import REPORT, job_name
from slurm.fit import Job, ids_with
from slurm.progress import display
from slurm.session import Asked, Work, open_work
from slurm.shared import check_shared
from slurm.slurm_commands import Queued

_COMING = (
    "planned",
    "running",
    "interrupted",
)  # runs that a job in progress may still bring to an end
REPORTED = "ended: complete"  # the state of a job that came to its end
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


class Refused(UsageError):
    """Slurm took some jobs and not this one; `lines` say what has become of all."""

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.lines = lines


def submit_missing(asked: Asked, report: bool = True) -> list[str]:
    """Submit every job that is neither in the queue nor done; lines to print. Doing it again
    changes nothing.

    With `report`, a last job waits for all of them and writes the report. Raises Refused where
    Slurm does not take a job: those before it stay in the queue and are reported on.
    """
    scripts(work := open_work(asked))  # every mistake comes out before anything is made
    slurm_commands.find_sbatch()
    _require_queue(work)
    lines = []
    with work.folder.lock() as lock:
        work = open_work(
            asked, locked=True
        )  # another submitter may have been faster, and its jobs too
        texts = scripts(work)
        queue = _require_queue(work)
        _adopt(work, lock, queue)
        states = job_states(work.folder, queue, _clusters(work))
        work.folder.keep_study(work.text)
        (work.folder.path / "jobs").mkdir(exist_ok=True)
        left_alone: set[str] = set()
        refused = ""
        room = (work.request.site.limits.max_submitted or 10**6) - len(queue)
        before = states.get(REPORT)
        after = [known.id for job, known in states.items() if known.in_progress and job != REPORT]
        for job in work.jobs:
            if at_work := _at_work(job, work, states):
                lines += [
                    f"{name}  {states[name].state} as job {states[name].id}"
                    for name in at_work
                    if name not in left_alone
                ]
                left_alone |= set(at_work)
            elif room <= 0:
                most = work.request.site.limits.max_submitted
                lines.append(
                    f"{job.id}  not submitted: the site takes {most} jobs of a user; resume later"
                )
            elif refused:
                lines.append(f"{job.id}  not submitted")
            else:
                try:
                    after.append(_submit(work, lock, job, texts[job.id]))
                except UsageError as error:
                    refused = str(error)
                    lines.append(f"{job.id}  not submitted")
                    continue
                lines.append(f"{job.id}  submitted as job {after[-1]}, {len(job.runs)} runs")
                room -= 1
        if report and after:
            pending = before.id if before is not None and before.state == "pending" else ""
            lines.append(chain(work, lock, after, pending, room))
        elif report and before is not None and not before.in_progress and before.state != REPORTED:
            lines.append(
                f"{REPORT}  {before.state}; make it here: python -m plots report {work.folder.path}"
            )
    if refused:
        raise Refused(refused, lines)
    return lines or [f"all {len(work.statuses)} runs are ok; nothing to submit"]


def scripts(work: Work) -> dict[str, str]:
    """The script of every job that is left to do, by the job's id. Raises UsageError where the site
    or its file will not do.
    """
    require_scheduler(work)
    work.folder.check_own()
    check_shared(work.request.site, work.folder.path)
    return {job.id: work.batch_script(job) for job in work.jobs}


def queue_of(work: Work) -> list[Queued] | None:
    """This user's jobs where the site's go; None where Slurm cannot be asked."""
    return slurm_commands.queue(_clusters(work))


def _require_queue(work: Work) -> list[Queued]:
    if (queue := queue_of(work)) is None:
        raise UsageError(
            "squeue does not answer, and without it a job might be submitted twice; try again later"
        )
    return queue


def _clusters(work: Work) -> str:
    return work.request.site.access.clusters


def _at_work(job: Job, work: Work, states: Mapping[str, JobState]) -> list[str]:
    """Jobs in progress, of either layout, that hold runs of this one."""
    ids = dict.fromkeys(name for run in job.runs for name in ids_with(run, work.request.site))
    return [name for name in ids if name in states and states[name].in_progress]


def require_scheduler(work: Work) -> None:
    """Raise UsageError at a site whose scripts run where they are started."""
    site = work.request.site
    if site.scheduler != "slurm":
        raise UsageError(
            f"site {site.name!r} has no scheduler; run the study there: python -m slurm run "
            f"{work.study.name} --site {site.name}"
        )


def _submit(work: Work, lock: Any, job: Job, text: str) -> str:
    states = {status.run.id: status.state for status in work.statuses}
    for run in job.runs:
        if states[run.id] != "planned":
            work.folder.set_aside(run.log)
    script = work.folder.add_script(text, job.id)
    job_id = slurm_commands.submit(script, work.folder.path / "jobs", lock)
    work.folder.record_job(
        lock,
        script,
        site=work.request.site.name,
        blocks=work.blocks,
        runs=len(job.runs),
        job=job.id,
        slurm_id=job_id,
    )
    return job_id


def _adopt(work: Work, lock: Any, queue: Sequence[Queued]) -> None:
    """Record jobs of ours that are queued but not on record: submitted by hand, or we were killed
    after sbatch.
    """
    recorded = {entry.slurm_id for entry in work.folder.read_jobs()}
    runs = Counter(
        name for status in work.statuses for name in ids_with(status.run, work.request.site)
    )
    names = {job_name(work.study, name): name for name in (*runs, REPORT)}
    for queued in queue:
        name = names.get(queued.name)
        if (
            name is not None
            and queued.id not in recorded
            and not _of_another_folder(queued.command, work.folder)
        ):
            script = work.folder.keep_script(Path(queued.command), name)
            work.folder.record_job(
                lock,
                script,
                site=work.request.site.name,
                blocks=work.blocks,
                runs=runs[name],
                job=name,
                slurm_id=queued.id,
            )


def _of_another_folder(command: str, folder: StudyFolder) -> bool:
    """Whether a queued script is one that `submit` keeps beside the logs of another study of this
    name.
    """
    script = Path(command)
    return script.name.startswith("job-") and script.parent.resolve() != folder.path.resolve()


def job_states(
    folder: StudyFolder, queue: Sequence[Queued] | None, clusters: str = ""
) -> dict[str, JobState]:
    """State of every job that was submitted, by us or by hand, the last time it was; `queue` None:
    Slurm cannot be asked.

    Where it was submitted more than once, one that is still in the queue goes before a later one
    that has left it.
    """
    ids: dict[str, set[str]] = {}
    for entry in folder.read_jobs():
        if entry.slurm_id:
            ids.setdefault(entry.job, set()).add(entry.slurm_id)
    for path in (folder.path / "jobs").glob("*.jsonl"):
        ids.setdefault(path.stem, set()).update(event.job for event in _events(path))
    queued = {q.id for q in queue or ()}
    last = {
        job: max(known, key=lambda n: (n in queued, int(n))) for job, known in ids.items() if known
    }  # Slurm's numbers rise
    gone = [
        job_id
        for job_id in last.values()
        if queue is not None and all(q.id != job_id for q in queue)
    ]
    accounts = slurm_commands.accounted(gone, clusters) if gone else {}
    return {
        job: JobState(_state(job_id, _said(folder, job, job_id), queue, accounts), job_id)
        for job, job_id in last.items()
    }


def _state(
    job_id: str,
    said: Sequence[JobEvent],
    queue: Sequence[Queued] | None,
    accounts: Mapping[str, str],
) -> str:
    """The queue's word first, then the job's own, then the accounts'; a job that nobody knows has
    vanished.
    """
    queued = next((q.state.lower() for q in queue or () if q.id == job_id), None)
    if queued:
        return "pending" if queued == "pending" else "running"
    if said and said[-1].event == "end":
        return f"ended: {said[-1].reason}"
    if queue is None:
        return "running" if said else "submitted"
    if job_id in accounts:
        return f"ended: {accounts[job_id]}"
    return "vanished: " + ("it began and left no end" if said else "it never began")


def _said(folder: StudyFolder, job: str, job_id: str) -> list[JobEvent]:
    """What a job wrote of itself, for this id alone."""
    return [said for said in _events(folder.path / "jobs" / f"{job}.jsonl") if said.job == job_id]


def _events(path: Path) -> list[JobEvent]:
    """What all ids of a job wrote."""
    try:
        return [said for said in read_events(path.read_bytes()) if said.job]
    except OSError:
        return []


def all_states(work: Work) -> dict[str, JobState]:
    """State of every job of the study, as far as Slurm and the jobs themselves tell."""
    return job_states(work.folder, queue_of(work), _clusters(work))


def said_by(work: Work, job: str, known: JobState) -> str:
    """What a job printed; '' where its output is not in the study's folder."""
    output = work.folder.path / "jobs" / f"{job_name(work.study, job)}-{known.id}.out"
    try:
        return output.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def look_at_jobs(work: Work, states: Mapping[str, JobState]) -> list[RunStatus]:
    """States of the runs, where an unfinished one is running only while its own job is; those ok
    are not read again.
    """
    found = []
    for status in work.statuses:
        if status.state == "ok":
            found.append(status)
            continue
        known = [states[name] for name in ids_with(status.run, work.request.site) if name in states]
        running = any(job.state == "running" for job in known)
        last = max(known, key=lambda job: int(job.id), default=None)
        found.append(
            look(
                status.run,
                running,
                "" if last is None or any(job.in_progress for job in known) else last.state,
            )
        )
    return found


def wait_for_jobs(asked: Asked, poll_s: float) -> Work:
    """Follow the study's jobs until none is in the queue, and show how it goes; the work as it then
    stands.

    Nothing is submitted. A job that Slurm starts again is followed on; a controller that does not
    answer is waited for.
    """
    work = open_work(asked)
    require_scheduler(work)
    slurm_commands.find_squeue()
    with display(len(work.statuses)) as show:
        while True:
            queue = queue_of(work)
            states = job_states(work.folder, queue, _clusters(work))
            work = replace(work, statuses=look_at_jobs(work, states))
            if queue is not None and not any(known.in_progress for known in states.values()):
                return work
            show(
                sum(s.state == "ok" for s in work.statuses),
                *_progress(work, states, queue is not None),
            )
            time.sleep(poll_s)


def _progress(
    work: Work, states: Mapping[str, JobState], answered: bool
) -> tuple[str, float | None]:
    """What the jobs do, and seconds left if as many go on running as do now; runs that failed wait
    for the next submission.
    """
    counts = Counter(known.state for known in states.values() if known.in_progress)
    said = ", ".join(
        f"{counts[state]} {state}" for state in ("running", "pending", "submitted") if counts[state]
    )
    failed = sum(s.state not in (*_COMING, "ok") for s in work.statuses)
    text = (
        f"jobs: {said}"
        + (f", {failed} runs failed" if failed else "")
        + ("" if answered else ", squeue does not answer")
    )
    coming = [s.run for s in work.statuses if s.state in _COMING]
    left_s = seconds_left(coming, work.statuses, work.study.expected_run_s)
    return text, None if left_s is None else left_s / max(1, counts["running"])


def cancel_all(asked: Asked) -> list[str]:
    """Take every job of the study out of the queue; lines to print."""
    work = open_work(asked)
    require_scheduler(work)
    lines = []
    # the report first: it would start once the jobs that it waits for are gone
    for job, known in sorted(
        all_states(work).items(), key=lambda item: (item[0] != REPORT, item[0])
    ):
        if known.in_progress:
            slurm_commands.cancel(known.id, known.state == "running", _clusters(work))
            lines.append(
                f"{job}  job {known.id} "
                + ("told to stop" if known.state == "running" else "taken out of the queue")
            )
    return lines or ["no job of this study is in the queue"]
