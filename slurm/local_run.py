"""Execution of a job script on this machine, and the checks before it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from bench.config import UsageError
from bench.launch.machine import others_now
from bench.record.outcome import NOISY
from slurm.driver.closing import SESSION
from slurm.session import Work

_POLL_S = 0.2
_LOOK_S = 0.5  # at who else works here: a share of 2 % shows in it


def require_checkout() -> None:
    """Raise UsageError if the current folder is not the root of a checkout, where scripts run."""
    if not Path("slurm/driver/__main__.py").is_file():
        rule = "is no checkout of this project, from which job scripts run"
        cure = "change to the root of a checkout, or write the script here"
        raise UsageError(f"{Path.cwd()} {rule}; {cure}: python -m slurm render STUDY")


def require_one_machine(work: Work) -> None:
    """Raise UsageError if runs were made on another host, unless the site has a hostfile."""
    this = socket.gethostname()
    elsewhere = {host for status in work.statuses for host in status.hosts} - {this}
    if elsewhere and not work.site.hostfile:
        held = f"{work.folder.path} holds runs made on {', '.join(sorted(elsewhere))}"
        rule = f"and this is {this}: a study stays on one machine"
        raise UsageError(f"{held}, {rule}; choose another --results")


def find_hosts(hostfile: str) -> None:
    """Raise UsageError if a hostfile is named but is not there."""
    if hostfile and not Path(hostfile).is_file():
        form = "mpirun's hostfile, one line for each host, as in 'node1 slots=4'"
        raise UsageError(f"{hostfile} is not there: {form}; write it")


def warn_if_busy() -> None:
    """Warn on standard error if other processes use more than NOISY of all CPU time."""
    share = others_now(_LOOK_S)
    if share is not None and share > NOISY:
        took = f"other processes take {100 * share:.0f} % of this machine's processor time"
        rule = f"above {100 * NOISY:g} % a report calls a run disturbed"
        print(f"warning: {took}; {rule}: end them, or run later", file=sys.stderr, flush=True)


def execute(script: Path, lock: IO[str], session: str) -> int | None:
    """Run a job script under the study's lock; return the signal that stopped it, else None.

    On Ctrl-C or another signal the script gets SIGTERM. `session` is this command's name in logs.
    Raises SystemExit for the script's exit code 2 (it has said why), UsageError for a higher one.
    """
    # this Python and what stands beside it, mpirun among it, whatever .venv there is
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    of_job = {"PATH": path, "STUDY_LOCK_FD": str(lock.fileno()), SESSION: session}
    with signals_caught() as caught:
        job = subprocess.Popen(
            ["bash", str(script)],
            stdin=subprocess.DEVNULL,
            env={"PYTHON": sys.executable, **os.environ, **of_job},
            pass_fds=(lock.fileno(),),
            start_new_session=True,
        )
        while job.poll() is None and not caught:
            time.sleep(_POLL_S)
        job.terminate()
        job.wait()
    if caught:
        return caught[0]
    if job.returncode == 2:
        sys.exit(2)  # the script has said in one line what is wrong
    if job.returncode < 0:  # not even the driver could say so
        killed = signal.Signals(-job.returncode)
        by = f"by {killed.name}, not from here: kill -9, or the kernel for want of memory"
        print(f"{script} was killed {by}; a run that it had begun goes on", file=sys.stderr)
        return killed
    if job.returncode not in (0, 1):
        raise UsageError(f"{script} stopped with exit code {job.returncode}; see its message above")
    return None


@contextmanager
def signals_caught() -> Iterator[list[int]]:
    """Yield a list that collects SIGINT, SIGTERM and SIGHUP, in place of their usual effect."""
    caught: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        caught.append(signum)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
