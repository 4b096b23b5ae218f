"""How far a long reading has come: a bar on a terminal, a line now and then in a batch log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SILENT_S = 1.0  # a reading that is over by then needs no word
LINE_EVERY_S = 10.0


def track(items: Sequence[T], what: str) -> Iterator[T]:
    """The items one by one, and on standard error how many were; `what`: 'run logs read'."""
    began = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if done < len(items) and time.monotonic() - began > SILENT_S:
            yield from (_bar if sys.stderr.isatty() else _lines)(items, what, done)
            return


def _bar(items: Sequence[T], what: str, done: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import track as bar

    console = Console(stderr=True)
    yield from bar(items[done:], what, len(items), done, console=console, transient=True)


def _lines(items: Sequence[T], what: str, done: int) -> Iterator[T]:
    said = float("-inf")
    for number in range(done, len(items)):
        if time.monotonic() - said > LINE_EVERY_S:
            print(f"{number:,} of {len(items):,} {what}", file=sys.stderr, flush=True)
            said = time.monotonic()
        yield items[number]
    print(f"{len(items):,} of {len(items):,} {what}", file=sys.stderr, flush=True)
