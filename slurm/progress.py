"""Show how the runs of a study go: a bar on a terminal, lines in a batch log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.study.status import duration

# runs done, what goes on ('': nothing does), seconds left
Show = Callable[[int, str, float | None], None]


def display(total: int) -> AbstractContextManager[Show]:
    """How to show the progress of `total` runs where standard output goes to."""
    return _bar(total) if sys.stdout.isatty() else _lines(total)


@contextmanager
def _lines(total: int) -> Iterator[Show]:
    last = (0, "")

    def show(done: int, current: str, left_s: float | None) -> None:
        nonlocal last
        if current and (done, current) != last:  # another estimate alone is no news
            print(f"{done}/{total} runs done, {current}, {_left(left_s)}", flush=True)
            last = (done, current)

    yield show


@contextmanager
def _bar(total: int) -> Iterator[Show]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, auto_refresh=False) as progress:
        task = progress.add_task("", total=total)
        last = (0, "")

        def show(done: int, current: str, left_s: float | None) -> None:
            nonlocal last
            text = f"{current}, {_left(left_s)}" if current else ""
            if (done, text) != last:  # redrawn only then: the ranks need the cores
                progress.update(task, completed=done, description=text, refresh=True)
                last = (done, text)

        yield show


def _left(left_s: float | None) -> str:
    return duration(left_s) + ("" if left_s is None else " left")
