"""What a study's folder holds: its study, its run logs, and of each log a run or why it is none."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track as bar

from bench.config import UsageError
from bench.record import Run, archive, read_run
from bench.study.definition import Study
from bench.study.files import salvage_study

T = TypeVar("T")

ATTEMPT = re.compile(r"\.attempt-\d+(?=\.jsonl$)")  # in the name of a run that was done again
SILENT_S = 1.0  # a reading that is over by then needs no word
LINE_EVERY_S = 10.0


@dataclass(frozen=True)
class Unusable:
    """A log that no number comes from, and why; `words` are its ranks' last ones, a line each."""

    log: str
    state: str
    reason: str
    words: tuple[str, ...] = ()
    cell: str = ""  # '' where the log does not say


def find_logs(folder: Path) -> tuple[list[Path], list[Unusable]]:
    """Find FOLDER/[runs/]*.jsonl, archived too: a log of each run, and the attempts before.

    Raises UsageError where there are none.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a study's folder, results/STUDY")
    runs = folder / "runs"
    place = runs if runs.is_dir() or archive.contents(folder) else folder
    paths = archive.logs_in(place)
    if not paths:
        raise UsageError(f"{place}: holds no run logs (*.jsonl); run the study first")
    superseded = [_superseded(path) for path in paths if ATTEMPT.search(path.name)]
    return [path for path in paths if not ATTEMPT.search(path.name)], superseded


def find_study(folder: Path) -> tuple[Study, tuple[str, ...]]:
    """Read a folder's study as far as its file tells, and name what had to be assumed."""
    study, wrong = salvage_study(folder / "study.toml", folder.resolve().name)
    margin = f"the margin of {100 * study.margin:g} %"
    assumed = f"{margin} is an assumption made when reporting, not beforehand"
    if not (folder / "study.toml").exists():
        return study, (f"No study.toml beside the logs: {assumed}.",)
    if not wrong:
        return study, ()
    named = "margin" in study.model_fields_set
    known = f"{margin} is the one that it names" if named else assumed
    return study, (f"study.toml is no valid study ({wrong}): no point counts as planned; {known}.",)


def changed_study(study: Study, carried: Sequence[str | None]) -> str:
    """Tell how many runs name another study than the file beside them; '' where none does."""
    digests = (None, study.sha256, *study.earlier_sha256)
    other = sum(sha256 not in digests for sha256 in carried)
    if not other:
        return ""
    differs = f"the study file differs from the one that {other} of {len(carried)} runs carry"
    return f"{differs}: what is fixed before the first run was changed after it"


def read_log(path: Path) -> Run | Unusable:
    """Read a usable run, or tell why it is not usable."""
    try:
        run = read_run(path)
    except UsageError as error:  # a folder of that name, or a file of somebody else
        return Unusable(path.name, "failed", str(error))
    if run.verdict.state == "ok":
        return run
    cell = "" if run.config is None else run.config.cell
    return Unusable(path.name, run.verdict.state, run.verdict.reason, run.verdict.words, cell)


def _superseded(path: Path) -> Unusable:
    run = read_log(path)
    if not isinstance(run, Unusable):
        cell = "" if run.config is None else run.config.cell
        return Unusable(path.name, run.state, "complete, but repeated", cell=cell)
    if run.state == "running":  # a run is done again only when its job is gone
        return replace(run, state="interrupted", reason="killed together with its job", words=())
    return run


def track(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """Yield the items; show a bar on standard error, or in a batch log a line now and then."""
    began, last_line_s = time.monotonic(), 0.0
    rest = iter(items)
    for done, item in enumerate(rest, 1):
        yield item
        now = time.monotonic()
        if now - began > SILENT_S and sys.stderr.isatty():
            console = Console(stderr=True)
            yield from bar(rest, label, total, done, console=console, transient=True)
            return
        if done < total and now - began > SILENT_S and now - last_line_s > LINE_EVERY_S:
            print(f"{done:,} of {total:,} {label}", file=sys.stderr, flush=True)
            last_line_s = now
    if last_line_s:
        print(f"{total:,} of {total:,} {label}", file=sys.stderr, flush=True)
