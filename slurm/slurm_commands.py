"""Start job scripts here or through Slurm, and ask Slurm about them."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from bench.config import UsageError
from bench.study.plan import Run
from bench.study.status import RunStatus
from slurm.progress import follow

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # Windows lacks one
_ANSWER_S = 60  # a busy controller takes its time
_WHERE = (
    "SLURM_CONF",
)  # says which Slurm to talk to; any other variable of an outer job would change the inner one


def find_launcher(hostfile: str) -> None:
    """Raise UsageError where the job script would not find mpirun, or mpirun its hosts."""
    if hostfile and not Path(hostfile).is_file():
        raise UsageError(
            f"{hostfile} is not there: mpirun's hostfile, one line for each host, as in 'node1 "
            f"slots=4'; write it"
        )
    venv = Path(".venv/bin")
    path = f"{venv.absolute()}{os.pathsep}{os.environ.get('PATH', '')}" if venv.is_dir() else None
    name = os.environ.get("MPIRUN", "mpirun")
    if shutil.which(name, path=path) is None:
        raise UsageError(
            f"{name} is not found; run `make setup`, which installs one, or say where yours is: "
            f"MPIRUN=/path/to/mpirun"
        )


def execute(
    script: Path,
    lock: IO[str],
    statuses: Sequence[RunStatus],
    todo: Sequence[Run],
    expected_run_s: int | None,
) -> int | None:
    """Run a job script under the study's lock and show how it goes; the signal that stopped it, or
    None.

    The script gets a session of its own, so that Ctrl-C reaches it once, from here, as the SIGTERM
    it forwards.
    """
    # this Python and what stands beside it, mpirun among it, whatever .venv there is
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {
        "PYTHON": sys.executable,
        **os.environ,
        "PATH": beside,
        "STUDY_LOCK_FD": str(lock.fileno()),
    }
    with _caught() as caught:
        job = subprocess.Popen(
            ["bash", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its progress lines; `follow` says the same and more
            env=environment,
            pass_fds=(lock.fileno(),),
            start_new_session=True,
        )
        follow(job, caught, statuses, todo, expected_run_s)
    if not caught and job.returncode == 2:
        sys.exit(2)  # the script has said in one line what is wrong
    if not caught and job.returncode not in (0, 1):
        raise UsageError(
            f"{script} stopped with exit code {job.returncode}; its own message is above"
        )
    return caught[0] if caught else None


@contextmanager
def _caught() -> Iterator[list[int]]:
    """Signals that arrive are collected instead of ending this process."""
    caught: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        caught.append(signum)

    before = {s: signal.signal(s, note) for s in _SIGNALS}
    try:
        yield caught
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


@dataclass(frozen=True)
class Queued:
    """One job as Slurm's queue shows it; `state` in Slurm's own word, as in PENDING, `command`: the
    script, where it tells.
    """

    id: str
    name: str
    state: str
    command: str = ""


def find_sbatch() -> None:
    """Raise UsageError where jobs cannot be submitted."""
    if shutil.which("sbatch") is None:
        raise UsageError(
            "there is no sbatch on this machine; submit on the cluster's login node, or write the "
            "scripts here: "
            "python -m slurm render STUDY --site SITE --out FOLDER"
        )


def find_squeue() -> None:
    """Raise UsageError where the queue cannot be seen."""
    if shutil.which("squeue") is None:
        raise UsageError("there is no squeue on this machine; use the cluster's login node")


def submit(script: Path, output: Path, lock: IO[str], after: Sequence[str] = ()) -> str:
    """Submit one job script; its job id. Its output goes below `output`. Raises UsageError with
    what sbatch said.

    It starts once the jobs `after` have ended, however they ended. sbatch holds the study's `lock`
    too: if we are killed, nobody else submits before it has ended and the job can be seen.
    """
    waits = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    said = _ask(
        ["sbatch", "--parsable", f"--output={output}/%x-%j.out", *waits, str(script)],
        pass_fds=(lock.fileno(),),
    )
    job_id = said.strip().partition(";")[0]  # a federation adds the cluster's name
    if not job_id.isdecimal():
        raise UsageError(
            f"sbatch answered {said.strip()!r}, which is no job id; see whether {script.name} is "
            f"in `squeue`"
        )
    return job_id


def queue(clusters: str = "") -> list[Queued] | None:
    """This user's jobs, pending and running; None where there is no squeue or it does not answer.

    `clusters`: where jobs go if not to the default cluster, as for sbatch; squeue would not see
    them there unasked.
    """
    try:
        said = _ask(
            [
                "squeue",
                *_on(clusters),
                "--noheader",
                f"--user={getpass.getuser()}",
                "--format=%i|%j|%T|%o",
            ]
        )
    except UsageError:
        return None
    return [
        Queued(*line.strip().split("|", 3)) for line in said.splitlines() if line.count("|") >= 2
    ]


def _on(clusters: str) -> list[str]:
    return [f"--clusters={clusters}"] if clusters else []


def accounted(job_ids: Sequence[str], clusters: str = "") -> dict[str, str]:
    """Slurm's last word on jobs that have left the queue, as in TIMEOUT; empty where it keeps no
    accounts.
    """
    if not job_ids:
        return {}
    try:
        asked = [
            "--noheader",
            "--allocations",
            "--parsable2",
            "--format=JobID,State",
            f"--jobs={','.join(job_ids)}",
        ]
        said = _ask(["sacct", *_on(clusters), *asked])
    except UsageError:
        return {}
    rows = (line.split("|") for line in said.splitlines() if "|" in line)
    return {
        row[0]: row[1].split()[0] for row in rows if row[1]
    }  # CANCELLED is followed by whose doing it was


def cancel(job_id: str, running: bool, clusters: str = "") -> None:
    """Take a pending job out of the queue; let a running one end its step, record that,
    and stop.
    """
    _ask(["scancel", *_on(clusters), *(["--batch", "--signal=TERM"] if running else []), job_id])


def ask_cluster(command: Sequence[str]) -> str:
    """What sinfo or scontrol says, or nothing where it is not there."""
    try:
        return _ask(command)
    except UsageError:
        return ""


def _ask(command: Sequence[str], pass_fds: Sequence[int] = ()) -> str:
    """Output of one of Slurm's commands. Raises UsageError with the line it complained in."""
    try:
        done = subprocess.run(
            command,
            env=_clean(os.environ),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_S,
            pass_fds=pass_fds,
        )
    except FileNotFoundError:
        raise UsageError(
            f"there is no {command[0]} on this machine; use the cluster's login node"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{command[0]} did not answer within {_ANSWER_S} s; is Slurm's controller up? see "
            f"`sinfo`"
        ) from None
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UsageError(
            f"{command[0]} refused: {complaint}; correct the site file or the options, then "
            f"submit again"
        )
    return done.stdout


def _clean(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an outer job, or the user's defaults for sbatch, would change in
    ours.
    """
    return {
        k: v
        for k, v in env.items()
        if k in _WHERE or not k.startswith(("SLURM_", "SBATCH_", "SRUN_", "SALLOC_"))
    }
