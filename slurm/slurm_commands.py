"""Slurm's commands to submit and cancel jobs, and to read its queue and its accounts."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.config import UsageError

_TRIES = 3  # to find a job in the queue that has just come there
_ANSWER_S = 60  # a busy controller takes its time
# of an outer job, or the user's defaults for sbatch; SLURM_CONF says which Slurm to talk to
_CHANGES_OURS = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_")


class SilentError(UsageError):
    """An error of a Slurm command that gave no answer, but may have done its work."""


@dataclass(frozen=True)
class Queued:
    """A job in Slurm's queue. `state` is such as PENDING, `command` its script's path or ''."""

    id: str
    name: str
    state: str
    command: str = ""


def find(program: str) -> None:
    """Raise UsageError if `program`, one of Slurm's commands, is not on PATH."""
    if shutil.which(program) is None:
        cure = "use the cluster's login node, or read the jobs' scripts: python -m slurm render"
        raise UsageError(f"there is no {program} on this machine; {cure}")


def submit(script: Path, output: Path, lock: IO[str], after: Sequence[str] = ()) -> str:
    """Submit a script to start when the jobs `after` have ended, well or not; return the job's id.

    sbatch inherits the study's `lock`: if this process is killed, nobody else submits until sbatch
    has ended. `output` is the folder of the job's output. Raises UsageError with what sbatch said,
    and SilentError if the job may be in the queue, but its id is not known.
    """
    waits = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    command = ["sbatch", "--parsable", f"--output={output}/%x-%j.out", *waits, str(script)]
    try:
        answer = _ask(command, pass_fds=(lock.fileno(),))
        why = f"sbatch said {(answer.strip().splitlines() or [''])[-1][:80]!r}"
    except SilentError as error:
        answer, why = "", str(error)
    # a centre's wrapper may greet before it, and a federation adds the cluster's name behind it
    form = r"^(?:Submitted batch job )?(\d+)(?:;.*| on cluster .*)?\s*$"
    ids: list[str] = re.findall(form, answer, re.M)
    for _ in range(_TRIES):
        ids = ids or [x.id for x in queue() or () if Path(x.command).resolve() == script.resolve()]
        if ids:
            return ids[-1]
        time.sleep(1)
    cure = "see `squeue --me`; a submit later on finds the job there and leaves it alone"
    raise SilentError(f"{script.name} may be submitted, id not known: {why}; {cure}")


def queue(clusters: str = "") -> list[Queued] | None:
    """Return this user's queued jobs, None if squeue fails; `clusters` is its --clusters."""
    # %A: of an array's task, %i is no number
    query = ["--noheader", f"--user={getpass.getuser()}", "--format=%A|%j|%T|%o"]
    answer = ask_cluster(["squeue", *_on(clusters), *query])
    if answer is None:
        return None
    rows = (line.strip().split("|", 3) for line in answer.splitlines())
    return [Queued(*row) for row in rows if len(row) >= 3]


def _on(clusters: str) -> list[str]:
    return [f"--clusters={clusters}"] if clusters else []


def accounted(job_ids: Sequence[str], clusters: str = "") -> dict[str, str]:
    """Return jobs' last states by id, such as TIMEOUT, as far as sacct has them; {} if it fails."""
    if not job_ids:
        return {}
    query = ["--noheader", "--allocations", "--parsable2", "--format=JobID,State"]
    answer = ask_cluster(["sacct", *_on(clusters), *query, f"--jobs={','.join(job_ids)}"])
    rows = (line.split("|") for line in (answer or "").splitlines() if "|" in line)
    # CANCELLED is followed by whose doing it was
    return {row[0]: row[1].split()[0] for row in rows if row[1]}


def cancel(job_id: str, running: bool, clusters: str = "") -> None:
    """Cancel a job; a `running` job's script gets SIGTERM, to record its end. Raises UsageError."""
    _ask(["scancel", *_on(clusters), *(["--batch", "--signal=TERM"] if running else []), job_id])


def ask_cluster(command: Sequence[str]) -> str | None:
    """Return what one of Slurm's commands prints; None if it is missing, fails or is too slow."""
    try:
        return _ask(command)
    except UsageError:
        return None


def _ask(command: Sequence[str], pass_fds: Sequence[int] = ()) -> str:
    """Return a Slurm command's output. Raises UsageError if it fails, SilentError if too slow."""
    find(command[0])
    inherited = os.environ.items()
    kept = {k: v for k, v in inherited if k == "SLURM_CONF" or not k.startswith(_CHANGES_OURS)}
    try:
        done = subprocess.run(
            command,
            env=kept,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_S,
            pass_fds=pass_fds,
        )
    except subprocess.TimeoutExpired:
        cure = "is Slurm's controller up? see `sinfo`"
        raise SilentError(f"{command[0]} did not answer within {_ANSWER_S} s; {cure}") from None
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        cure = "correct the site file or the options, then submit again"
        raise UsageError(f"{command[0]} refused: {complaint}; {cure}")
    return done.stdout
