"""Read a study's folder: its complete runs one by one, everything else with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bench.config import UsageError
from bench.record import Run, read_run
from bench.study.definition import Study
from bench.study.files import salvage_study
from plots.read.progress import track

T = TypeVar("T")

ATTEMPT = re.compile(
    r"\.attempt-\d+(?=\.jsonl$)"
)  # a run that was done again; what is left is its own name


@dataclass(frozen=True)
class Unusable:
    """A log that no number comes from, and why; `words` are the last ones of its ranks, one line
    each.
    """

    log: str
    state: str
    reason: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StudyLogs(Generic[T]):
    """A study's folder as read: `kept` is what the caller made of each usable log, by file name.

    `notes` says what had to be assumed.
    """

    study: Study
    kept: tuple[T, ...]
    unusable: tuple[Unusable, ...]
    superseded: tuple[Unusable, ...]
    notes: tuple[str, ...]


def read_folder(folder: Path, keep: Callable[[Run], T]) -> StudyLogs[T]:
    """Read FOLDER/study.toml and FOLDER/runs/*.jsonl (or FOLDER/*.jsonl); raises UsageError where
    there are no logs.

    A run is handed to `keep` and let go: all steps of all logs do not fit into memory.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a study's folder, results/STUDY")
    study, notes = _study(folder)
    place = folder / "runs" if (folder / "runs").is_dir() else folder
    paths = sorted(place.glob("*.jsonl"))
    if not paths:
        raise UsageError(f"{place}: holds no run logs (*.jsonl); run the study first")
    kept: list[T] = []
    unusable: list[Unusable] = []
    for path in track([p for p in paths if not ATTEMPT.search(p.name)], "run logs read"):
        run = read_log(path)
        if isinstance(run, Unusable):
            unusable.append(run)
        else:
            kept.append(keep(run))
    return StudyLogs(
        study=study,
        kept=tuple(kept),
        unusable=tuple(unusable),
        superseded=tuple(_superseded(p) for p in paths if ATTEMPT.search(p.name)),
        notes=notes,
    )


def _study(folder: Path) -> tuple[Study, tuple[str, ...]]:
    study, wrong = salvage_study(folder / "study.toml", folder.resolve().name)
    margin = f"the margin of {100 * study.margin:g} %"
    assumed = f"{margin} is an assumption made when reporting, not beforehand"
    if not (folder / "study.toml").exists():
        return study, (f"No study.toml beside the logs: {assumed}.",)
    if not wrong:
        return study, ()
    of_the_file = f"{margin} is the one that it names"
    known = of_the_file if "margin" in study.model_fields_set else assumed
    return study, (f"study.toml is no valid study ({wrong}): no point counts as planned; {known}.",)


def read_log(path: Path) -> Run | Unusable:
    """A usable run, or why not."""
    try:
        run = read_run(path)
    except UsageError as error:  # a folder of that name, or a file of somebody else
        return Unusable(path.name, "failed", str(error))
    verdict = run.verdict
    return (
        run
        if verdict.state == "ok"
        else Unusable(path.name, verdict.state, verdict.reason, verdict.words)
    )


def _superseded(path: Path) -> Unusable:
    run = read_log(path)
    if not isinstance(run, Unusable):
        return Unusable(path.name, run.state, "complete, but repeated")
    # a run is done again only when its job is gone
    return (
        Unusable(path.name, "interrupted", "killed together with its job")
        if run.state == "running"
        else run
    )
