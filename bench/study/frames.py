"""A study's folder as data frames, a row per usable run, and why other logs are unusable."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from bench.config import UsageError
from bench.record import Run, archive, read_run
from bench.study import comparability
from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.folder import SHIPPED
from bench.study.points import by_point
from bench.study.rows import RunRow, row_of

ATTEMPT = re.compile(r"\.attempt-\d+(?=\.jsonl$)")  # in the name of a run that was done again
# columns for the analysis alone, or the same for all runs that count
OF_THE_ANALYSIS = (
    *("recorded", "parts", "trainings", "served", "resources"),
    *("study_sha256", "took_turns_in", "observe", "began_s", "wall_s"),
)
PAUSE_S = 3 * 3600.0  # without a start of a run; from then on a machine may be in another state
_EXECUTION = re.compile(r"session \S+ (boot \S+)")
_WORTH_PROCESSES = 500  # logs: fewer are read sooner than other processes start


@dataclass(frozen=True)
class Unusable:
    """A log that no result may use, and why; `words` are the last messages of its ranks."""

    log: str
    state: str
    reason: str
    words: tuple[str, ...] = ()
    cell: str = ""  # '' where the log does not say


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A study's folder as read; `notes` say what is assumed if study.toml is missing."""

    shipped: bool  # with the project: nothing is added to it
    study: Study
    fixed: bool  # whether runs carry the study as it was planned, so that a change would show
    changed: str  # what shows, '' if nothing
    runs: pd.DataFrame  # a row for each usable run that trained
    observed: pd.DataFrame  # and for each whose steps were watched
    unusable: tuple[Unusable, ...]
    superseded: tuple[Unusable, ...]
    notes: tuple[str, ...]
    host: dict[str, Any]  # provenance of the run that saw most of the machine


def load(folder: Path) -> Loaded:
    """Read a study's folder. Raises UsageError if it has no logs, or an invalid study.toml."""
    paths = _find_logs(folder)
    study, notes = _find_study(folder)
    rows, unusable = list[RunRow](), list[Unusable]()
    widest: Mapping[str, Any] = {}
    logs = [path for path in paths if not ATTEMPT.search(path.name)]
    cores = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        each: Any = map
        if cores > 1 and len(logs) >= _WORTH_PROCESSES:
            pool = ProcessPoolExecutor(cores, get_context("fork"))
            each = partial(stack.enter_context(pool).map, chunksize=16)
        for read in each(partial(_read_row, study=study), logs):
            if isinstance(read, Unusable):
                unusable.append(read)
                continue
            rows.append(read[0])
            widest = max(widest, read[1], key=lambda host: len(host.get("ranks", ())))
    carried = [row["study_sha256"] for row in rows]
    kept = (folder / "study.toml").exists()
    cell_of = {row["log"]: row["cell"] for row in rows}
    name_sessions(rows)
    frames = {}
    for kind in ("nothing", "breakdown"):
        of_kind = [row for row in rows if kind == row["observe"]]
        aside = _set_aside(pd.DataFrame(of_kind))
        unusable += [Unusable(log, "ok", reason) for log, reason in aside.items()]
        frames[kind] = pd.DataFrame([row for row in of_kind if row["log"] not in aside])
    return Loaded(
        shipped=(folder / SHIPPED).exists(),
        study=study,
        fixed=kept and any(carried),
        changed=changed_study(study, carried) if kept else "",
        runs=frames["nothing"],
        observed=frames["breakdown"],
        unusable=tuple(unusable),
        superseded=tuple(_superseded(p, cell_of) for p in paths if ATTEMPT.search(p.name)),
        notes=notes,
        host=dict(widest),
    )


def _find_logs(folder: Path) -> list[Path]:
    """List the logs in runs/ or its archive, else in `folder`. Raises UsageError if none exists."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a study's folder, results/STUDY")
    runs = folder / "runs"
    place = runs if runs.is_dir() or archive.contents(folder) else folder
    if paths := archive.logs_in(place):
        return paths
    raise UsageError(f"{place}: holds no run logs (*.jsonl); run the study first")


def _find_study(folder: Path) -> tuple[Study, tuple[str, ...]]:
    """Return study.toml's study, or an assumed one with notes. Raises UsageError if invalid."""
    if (path := folder / "study.toml").exists():
        return read_study(path), ()
    study = Study.model_construct(name=folder.resolve().name, question="", launches=0)
    margin = f"the margin of {100 * study.margin:g} %"
    assumed = f"{margin} is an assumption made when reporting, not beforehand"
    return study, (f"No study.toml beside the logs: {assumed}.",)


def changed_study(study: Study, carried: Sequence[str | None]) -> str:
    """Say how many of the digests that runs `carried` are of another study file; '' if none."""
    digests = (None, study.sha256, *study.earlier_sha256)
    other = sum(sha256 not in digests for sha256 in carried)
    if not other:
        return ""
    differs = f"the study file differs from the one that {other} of {len(carried)} runs carry"
    return f"{differs}: what is fixed before the first run was changed after it"


def _read_log(path: Path) -> Run | Unusable:
    try:
        run = read_run(path)
    except UsageError as error:  # a folder of that name, or a file of somebody else
        return Unusable(path.name, "failed", str(error))
    if run.outcome.state == "ok":
        return run
    cell = "" if run.config is None else run.config.cell
    return Unusable(path.name, run.state, run.outcome.reason, run.outcome.words, cell)


def _read_row(path: Path, study: Study) -> tuple[RunRow, Mapping[str, Any]] | Unusable:
    """Return the row and the host record of a log's run, or why the log is not usable."""
    run = _read_log(path)
    if isinstance(run, Unusable):
        return run
    assert run.config is not None
    try:
        # a log of another study is of this one's folder all the same: its notes tell
        arm = study.arm_of(run.config) if run.config.study == study.name else run.config.arm
    except ValueError as error:
        return Unusable(path.name, "ok", str(error), cell=run.config.cell)
    return row_of(run, arm or ""), run.host


def _superseded(path: Path, cell_of: Mapping[str, str]) -> Unusable:
    """Describe an attempt that was repeated later; `cell_of` maps names of logs to their cells."""
    run = _read_log(path)
    cell = cell_of.get(ATTEMPT.sub("", path.name), "")
    if isinstance(run, Run):
        cell = cell if run.config is None else run.config.cell
        return Unusable(path.name, run.state, "complete, but repeated", cell=cell)
    run = replace(run, cell=run.cell or cell)
    if run.state == "running":  # a run is done again only when its job is gone
        return replace(run, state="interrupted", reason="killed together with its job", words=())
    return run


def name_sessions(runs: Iterable[RunRow]) -> None:
    """Set each run's `session`, as '2026-11-22 19:09 boot a85f88dd', or '' if it is not logged.

    A session is a series of runs on one boot of a machine or, in a cluster, on the same nodes. A
    pause of PAUSE_S seconds between two starts ends it, as the machine may change meanwhile.
    """
    last: dict[str, tuple[float, str]] = {}  # by machine: its last start, and the session
    for run in sorted(runs, key=lambda run: (math.isnan(run["began_s"]), run["began_s"])):
        run["session"], began_s = "", run["began_s"]
        if not run["hosts"] or math.isnan(began_s):
            continue
        boot = _EXECUTION.fullmatch(run["allocation"])
        machine = boot[1] if boot else f"on {', '.join(run['hosts'])}"
        before_s, session = last.get(machine, (-math.inf, ""))
        if began_s - before_s >= PAUSE_S:
            session = f"{datetime.fromtimestamp(began_s, UTC):%Y-%m-%d %H:%M} {machine}"
        last[machine] = began_s, session
        run["session"] = session


def tidy(loaded: Loaded) -> pd.DataFrame:
    """Return the runs with columns of numbers and texts only, as for a notebook or a file."""
    frame = loaded.runs.drop(columns=["facts", *OF_THE_ANALYSIS])
    return frame.assign(**{name: frame[name].map(", ".join) for name in ("curves", "hosts")})


def _set_aside(runs: pd.DataFrame) -> dict[str, str]:
    """Find points whose runs differ in work or conditions; return a reason for each of their logs.

    Runs of a point are averaged, so they must agree. In a scheduler's jobs, nodes and cores may
    differ, because the scheduler chooses these for each job.
    """
    aside: dict[str, str] = {}
    for _, group in by_point(runs):
        facts = []
        for one, allocation in zip(group["facts"], group["allocation"], strict=True):
            apart = comparability.PER_JOB if allocation.startswith("job ") else ()
            facts.append({k: v for k, v in one.items() if k not in apart})
        if differing := comparability.differences(facts, comparability.PER_LAUNCH):
            why = f"runs of its point differ: {'; '.join(differing)}"
            why += "; give each kind an --arm or a folder of its own"
            aside |= dict.fromkeys(group["log"], why)
    return aside


class NothingUsable(UsageError):
    """The error for a folder with logs, but without a usable training run."""


def require(loaded: Loaded, folder: Path) -> None:
    """Raise NothingUsable if no training run is usable."""
    if not loaded.runs.empty:
        return
    counts = Counter(u.reason.splitlines()[0][:120] for u in loaded.unusable)
    most = [f"{n} x {reason}" for reason, n in counts.most_common(3)]
    none = f"none of {len(loaded.unusable)} logs is usable: {'; '.join(most)}"
    if not loaded.observed.empty:
        none = "only logs of observed runs are usable; put training runs beside them"
    raise NothingUsable(f"{folder}: {none}")
