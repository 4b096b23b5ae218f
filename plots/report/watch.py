"""The report of a study that is still running, made again whenever a run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.config import UsageError
from plots.report.write import analysed, write


def watch(
    folder: Path,
    out: Path,
    every_s: float,
    show: Callable[[list[str]], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until all planned blocks are there; Ctrl-C stops it, and leaves the last report.

    Raises UsageError for a folder in which nothing of a study is.
    """
    if not (folder / "study.toml").exists() and not _logs(folder):
        raise UsageError(f"{folder}: holds no study.toml and no logs; name a study's folder")
    before: object = None
    while True:
        now = _logs(folder)
        if now != before:
            before = now
            try:
                a = analysed(folder)
            except UsageError as early:  # no run has ended yet
                show([str(early)])
            else:
                show(write(a, out))
                if 0 < a.loaded.study.blocks <= a.blocks and not a.gaps:
                    return
        sleep(every_s)


def _logs(folder: Path) -> list[tuple[str, int]]:
    found = [*folder.glob("runs/*.jsonl"), *folder.glob("*.jsonl")]
    return sorted((path.name, path.stat().st_size) for path in found)
