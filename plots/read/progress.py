"""How far a long reading has come: a bar on a terminal, a line now and then in a batch log, nothing
where it is short.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SILENT_S = 1.0  # a reading that is over by then needs no word
LINE_EVERY_S = 10.0


def track(items: Sequence[T], what: str) -> Iterator[T]:
    """The items one by one, and on standard error how many have been handed out; `what`: 'run logs
    read'.
    """
    began = time.monotonic()
    done = 0
    for item in items:  # until it shows to take long
        yield item
        done += 1
        if time.monotonic() - began > SILENT_S:
            break
    if done < len(items):
        yield from (_bar if sys.stderr.isatty() else _lines)(items, what, done)


def _bar(items: Sequence[T], what: str, done: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=len(items), completed=done)
        for item in items[done:]:
            yield item
            progress.advance(task)


def _lines(items: Sequence[T], what: str, done: int) -> Iterator[T]:
    said = float("-inf")
    for number in range(done, len(items)):
        if time.monotonic() - said > LINE_EVERY_S:
            print(f"{number:,} of {len(items):,} {what}", file=sys.stderr, flush=True)
            said = time.monotonic()
        yield items[number]
    print(f"{len(items):,} of {len(items):,} {what}", file=sys.stderr, flush=True)
