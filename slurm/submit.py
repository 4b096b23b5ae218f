"""Submission of a study's missing jobs and a report job to Slurm, and their cancellation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.config import UsageError
from slurm import slurm_commands, states
from slurm.fit import REPORT, job_name, job_of
from slurm.session import Work, open_work
from slurm.slurm_commands import Queued, SilentError
from slurm.states import REPORTED, JobState


def submit_missing(work: Work, report: bool = True) -> Iterator[str]:
    """Submit every job that is neither in the queue nor done; yield a line to print on each.

    With `report`, add a job that makes the report when the others have ended. A second call submits
    no job twice. Raises UsageError if squeue fails or, at the end, if a job was refused.
    """
    slurm_commands.find("sbatch")
    _require_queue(work)
    with work.folder.lock() as lock:
        # another submitter may have been faster, and its jobs too
        work = open_work(work.options, locked=True, launches=work.launches)
        submission = _Submission(work, lock)
        texts, queue = scripts(work), _require_queue(work)
        submission.record_submitted(queue)
        jobs = states.job_states(work, queue)
        work.folder.keep_study(work.text)
        (work.folder.path / "jobs").mkdir(exist_ok=True)
        before = jobs.pop(REPORT, JobState(REPORTED))
        after = [job.id for job in jobs.values() if job.in_progress]
        refusal: UsageError | None = None
        for job in work.jobs:
            if (known := jobs.get(job.id)) is not None and known.in_progress:
                yield f"{job.id}  {known.state} as job {known.id}"
                continue
            if refusal is not None:
                yield f"{job.id}  not submitted"
                continue
            for run in job.runs:
                work.folder.set_aside(run.log)
            waits_for = list(after) if work.site.policy.one_at_a_time else ()
            try:
                after.append(submission.submit(texts[job.id], job.id, len(job.runs), waits_for))
                yield f"{job.id}  submitted as job {after[-1]}, {len(job.runs)} runs"
            except UsageError as error:
                refusal = error
                silent = isinstance(error, SilentError)
                yield f"{job.id}  {'submitted, id not known' if silent else 'not submitted'}"
        if report and after:
            pending = before.id if before.state == "pending" else ""
            yield f"{REPORT}  {submission.chain(after, pending)}"
        elif report and not before.in_progress and before.state != REPORTED:
            yield f"{REPORT}  {states.no_report(work, before)}"
        elif not work.jobs:
            yield f"all {len(work.statuses)} runs are ok; nothing to submit"
    if refusal:
        raise refusal


@dataclass(frozen=True)
class _Submission:
    """Submission of one study's jobs, while this process holds the study's lock."""

    work: Work
    lock: IO[str]

    def record(self, script: Path, job: str, job_id: str, runs: int, after: Sequence[str]) -> None:
        """Record in jobs.jsonl that Slurm has a job, which waits for `after`. Raises UsageError."""
        named = {"site": self.work.site.name, "job": job, "slurm_id": job_id}
        counts = {"launches": self.work.launches, "runs": runs}
        self.work.folder.record_job(script, **named, **counts, after=list(after))

    def record_submitted(self, queue: Sequence[Queued]) -> None:
        """Record in jobs.jsonl the study's queued jobs that are missing there, as after a kill."""
        work, folder = self.work, self.work.folder
        recorded = {entry.slurm_id for entry in folder.read_jobs()}
        runs = Counter(job_of(status.run, work.site) for status in work.statuses)
        names = {job_name(work.study, name): name for name in (*runs, REPORT)}
        for queued in queue:
            script, name = Path(queued.command), names.get(queued.name)
            kept_here = script.parent.resolve() == folder.path.resolve()
            if name is not None and kept_here and queued.id not in recorded:
                self.record(script, name, queued.id, runs[name], ())

    def submit(self, text: str, job: str, runs: int, after: Sequence[str]) -> str:
        """Write a script, submit it, record its job and return the job's id. Raises UsageError."""
        script = self.work.folder.add_script(text, job)
        output = self.work.folder.path / "jobs"
        job_id = slurm_commands.submit(script, output, self.lock, after)
        self.record(script, job, job_id, runs, after)
        return job_id

    def chain(self, after: Sequence[str], pending: str) -> str:
        """Submit a report job that starts when the jobs `after` have ended; return a line on it.

        The report job `pending` ('': none) is replaced unless it already waits for all of these.
        """
        work = self.work
        waits_for = {entry.slurm_id: set(entry.after) for entry in work.folder.read_jobs()}
        if pending and set(after) <= waits_for.get(pending, set()):
            return f"pending as job {pending}"
        try:
            text = work.report_script()
            if pending:
                slurm_commands.cancel(pending, False, work.site.access.clusters)
            job_id = self.submit(text, REPORT, 0, after)
        except SilentError as error:
            return str(error)
        except (UsageError, OSError) as error:  # the jobs that measure stay in the queue
            reason = " ".join(str(error).split())
            cure = f"when they have ended: python -m plots report {work.folder.path}"
            return f"not submitted: {reason}; {cure}"
        return f"submitted as job {job_id}, after {len(after)} job{'s' if len(after) > 1 else ''}"


def scripts(work: Work) -> dict[str, str]:
    """Render scripts of jobs left, by job id. Raises UsageError if site or folder take no jobs."""
    states.require_scheduler(work)
    work.folder.check_open()
    work.folder.check_way(slurm=True)
    return {job.id: work.batch_script(job) for job in work.jobs}


def cancel_all(work: Work) -> list[str]:
    """Cancel waiting jobs, tell running jobs to stop; return a line on each. Raises UsageError.

    The report job is cancelled first, lest it start when the others end. The others are then looked
    up under the study's lock, when nobody can submit any more.
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
