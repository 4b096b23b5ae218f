"""Start a job script and follow it to its end: the only file that starts other programs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from bench.config import UsageError
from slurm.plan import Run
from slurm.status import RunStatus, duration, look, seconds_left

_POLL_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Show = Callable[[int, str, float | None], None]  # runs done, current run's id, seconds left


def find_launcher() -> None:
    """Raise UsageError where the job script would not find mpirun."""
    venv = Path(".venv/bin")
    path = f"{venv.absolute()}{os.pathsep}{os.environ.get('PATH', '')}" if venv.is_dir() else None
    name = os.environ.get("MPIRUN", "mpirun")
    if shutil.which(name, path=path) is None:
        raise UsageError(
            f"{name} is not found; run `make setup`, which installs one, or say where yours is: MPIRUN=/path/to/mpirun"
        )


def execute(
    script: Path, lock: IO[str], statuses: Sequence[RunStatus], todo: Sequence[Run], expected_run_s: int | None
) -> int | None:
    """Run a job script under the study's lock and show how it goes; the signal that stopped it, or None.

    The script gets a session of its own, so that Ctrl-C reaches it once, from here, as the SIGTERM it forwards.
    """
    # this Python and what stands beside it, mpirun among it, whatever .venv there is
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {"PYTHON": sys.executable, **os.environ, "PATH": beside, "STUDY_LOCK_FD": str(lock.fileno())}
    with _caught() as caught:
        job = subprocess.Popen(
            ["bash", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its progress lines; `_follow` says the same and more
            env=environment,
            pass_fds=(lock.fileno(),),
            start_new_session=True,
        )
        show_with = _bar if sys.stdout.isatty() else _lines
        with show_with(len(statuses)) as show:
            _follow(job, caught, statuses, todo, expected_run_s, show)
    if not caught and job.returncode == 2:
        sys.exit(2)  # the script has said in one line what is wrong
    if not caught and job.returncode not in (0, 1):
        raise UsageError(f"{script} stopped with exit code {job.returncode}; its own message is above")
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


def _follow(
    job: subprocess.Popen[bytes],
    caught: Sequence[int],
    statuses: Sequence[RunStatus],
    todo: Sequence[Run],
    expected_run_s: int | None,
    show: Show,
) -> None:
    """Watch the logs until the job ends, and pass a signal on once. The logs are the truth, whoever runs them."""
    finished = [status for status in statuses if status.state == "ok"]
    waiting, told = list(todo), False
    while True:
        ended = job.poll() is not None
        while waiting and _has_ended(waiting[0].log):
            finished.append(look(waiting.pop(0), job_is_running=False))
        current = waiting[0].id if waiting and not ended else ""
        if caught and not told and not ended:
            job.terminate()  # before anything is shown: the terminal may be gone
            told = True
        left_s = seconds_left(waiting, finished, expected_run_s)
        show(len(finished), f"stopping {current}" if told and current else current, left_s)
        if ended:
            return
        time.sleep(_POLL_S)


def _has_ended(log: Path) -> bool:
    """Whether the job script has added its last line; the whole log is read only then."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 200))
            return b'"event": "exit"' in file.read()
    except FileNotFoundError:
        return False


@contextmanager
def _lines(total: int) -> Iterator[Show]:
    """For a batch log: a line whenever another run begins."""
    last = ""

    def show(done: int, current: str, left_s: float | None) -> None:
        nonlocal last
        if current and current != last:
            print(f"{done}/{total} runs done, now {current}, {_left(left_s)}", flush=True)
            last = current

    yield show


@contextmanager
def _bar(total: int) -> Iterator[Show]:
    """For a terminal: one bar, redrawn only when there is news, because the ranks need the cores."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, auto_refresh=False) as progress:
        task = progress.add_task("", total=total)
        shown = ""

        def show(done: int, current: str, left_s: float | None) -> None:
            nonlocal shown
            text = f"{current}, {_left(left_s)}" if current else ""
            if (news := f"{done} {text}") != shown:
                progress.update(task, completed=done, description=text, refresh=True)
                shown = news

        yield show


def _left(left_s: float | None) -> str:
    return duration(left_s) + ("" if left_s is None else " left")
