"""The report's job, chained after a study's other jobs: what they measured is reported, however
they end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.config import UsageError
from slurm import slurm_commands
from slurm.directives import REPORT
from slurm.session import Work


def chain(work: Work, lock: Any, after: Sequence[str], pending: str, room: int) -> str:
    """Have the report made once the jobs `after` have ended; the line to print, also where it
    cannot be submitted.

    The `pending` one, if there is any, stays if it waits for all of them; else it is replaced.
    `room`: jobs the site still takes.
    """
    if pending and set(after) <= _waits_for(work, pending):
        return f"{REPORT}  pending as job {pending}"
    try:
        if room + bool(pending) <= 0:
            raise UsageError(
                f"the site takes {work.request.site.limits.max_submitted} jobs of a user"
            )
        script = work.folder.add_script(work.report_script(), REPORT)
        if pending:
            slurm_commands.cancel(pending, False, work.request.site.access.clusters)
        job_id = slurm_commands.submit(script, work.folder.path / "jobs", lock, after)
    except (UsageError, OSError) as error:  # the jobs that measure are in the queue, and stay there
        said = " ".join(str(error).split())
        return (
            f"{REPORT}  not submitted: {said}; when they have ended: python -m plots report "
            f"{work.folder.path}"
        )
    work.folder.record_job(
        lock,
        script,
        site=work.request.site.name,
        blocks=work.blocks,
        runs=0,
        job=REPORT,
        slurm_id=job_id,
        after=list(after),
    )
    return (
        f"{REPORT}  submitted as job {job_id}, after {len(after)} "
        f"job{'s' if len(after) > 1 else ''}"
    )


def _waits_for(work: Work, job_id: str) -> set[str]:
    return {
        one for entry in work.folder.read_jobs() if entry.slurm_id == job_id for one in entry.after
    }
