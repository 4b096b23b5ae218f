"""What a person sees while a run goes on: a bar on a terminal, plain lines in a batch log. Rank 0 only."""

from __future__ import annotations

import sys
import time
from typing import Any


class Lines:
    """One line per window on standard error."""

    def window(self, phase: str, done: int, total: int, images_per_s: float) -> None:
        print(f"{phase} {done}/{total}: {images_per_s:.4g} images/s", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Bar:
    """A rich bar with an estimate. Redrawn at window edges only: a redraw inside a window would be measured with it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} windows")]
        columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn()]
        self._progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False, get_time=time.monotonic)
        self._progress.start()
        self._task = self._progress.add_task("warm-up", total=None, rate="")
        self._progress.refresh()

    def window(self, phase: str, done: int, total: int, images_per_s: float) -> None:
        rate = f"{images_per_s:.4g} images/s"
        self._progress.update(self._task, description=phase, completed=done, total=total, rate=rate)
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


class Silent:
    """Ranks other than 0."""

    def window(self, phase: str, done: int, total: int, images_per_s: float) -> None:
        pass

    def close(self) -> None:
        pass


def make_progress(rank: int) -> Lines | Bar | Silent:
    """The one that suits this rank and its standard error."""
    if rank:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()
