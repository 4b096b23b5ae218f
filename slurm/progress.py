"""Follow the runs of a study by their logs, here or in Slurm's jobs, and show how it goes: a bar,
or lines in a batch log.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.study.plan import Run
from bench.study.status import RunStatus, duration, look, seconds_left

_POLL_S = 1.0
_LAST_LINE_BYTES = 2**14  # more than the longest that a job script adds

Show = Callable[
    [int, str, float | None], None
]  # runs done, what goes on ('': nothing does), seconds left


def display(total: int) -> AbstractContextManager[Show]:
    """How to show the progress of `total` runs where standard output goes to."""
    return _bar(total) if sys.stdout.isatty() else _lines(total)


def follow(
    job: subprocess.Popen[bytes],
    caught: Sequence[int],
    statuses: Sequence[RunStatus],
    todo: Sequence[Run],
    expected_run_s: int | None,
) -> None:
    """Watch the logs until the job ends, and pass a caught signal on once. The logs are the truth,
    whoever runs them.
    """
    with display(len(statuses)) as show:
        _watch(job, caught, statuses, todo, expected_run_s, show)


def _watch(
    job: subprocess.Popen[bytes],
    caught: Sequence[int],
    statuses: Sequence[RunStatus],
    todo: Sequence[Run],
    expected_run_s: int | None,
    show: Show,
) -> None:
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
        show(len(finished), current and f"{'stopping' if told else 'now'} {current}", left_s)
        if ended:
            return
        time.sleep(_POLL_S)


def _has_ended(log: Path) -> bool:
    """Whether the job script has added its last line; the whole log is read only then."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_LINE_BYTES))
            return b'"event": "exit"' in file.read()
    except FileNotFoundError:
        return False


@contextmanager
def _lines(total: int) -> Iterator[Show]:
    """For a batch log: a line whenever there is news."""
    last = (0, "")

    def show(done: int, current: str, left_s: float | None) -> None:
        nonlocal last
        if current and (news := (done, current)) != last:
            print(f"{done}/{total} runs done, {current}, {_left(left_s)}", flush=True)
            last = news

    yield show


@contextmanager
def _bar(total: int) -> Iterator[Show]:
    """For a terminal: one bar, redrawn only when there is news,
    because the ranks need the cores.
    """
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
