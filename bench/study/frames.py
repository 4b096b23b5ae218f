"""A study's runs as one tidy frame, one row each, and why others have none."""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from sys import intern
from typing import Any

import pandas as pd

from bench.config import Role, UsageError, fields_with
from bench.record.archive import size_bytes
from bench.study import comparability
from bench.study.definition import Study
from bench.study.folder import SHIPPED
from bench.study.logs import (
    ATTEMPT,
    Unusable,
    changed_study,
    find_logs,
    find_study,
    read_log,
    track,
)
from bench.study.points import alone, by_point
from bench.study.rows import RunRow, row_of

CLOCK = ("began_s", "wall_s")  # of a run: seconds since 1970, and seconds with its launcher's
# columns for the analysis alone, or the same for all runs that count
OF_THE_ANALYSIS = (
    *("recorded", "parts", "trainings", "served", "resources"),
    *("machines", "exchanged_bytes"),
    *("renamed", "study_sha256", "processes", "took_turns_in"),
    *(*CLOCK, *fields_with(Role.APART)),
)
_TEXTS = ("facts", "recorded")
PAUSE_S = 3 * 3600.0  # without a start of a run; from then on a machine may be in another state
_EXECUTION = re.compile(r"session \S+ (boot \S+)")
_WORTH_BYTES = 50_000_000  # of logs: below this other processes take longer to start than to read


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A study's folder as read; `notes` says what had to be assumed."""

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
    """Read a study's folder; raises UsageError where there are no logs."""
    paths, superseded = find_logs(folder)
    study, notes = find_study(folder)
    rows: list[RunRow] = []
    unusable: list[Unusable] = []
    widest: Mapping[str, Any] = {}
    for one in track(_read_all(paths, study), "run logs read", len(paths)):
        if isinstance(one, Unusable):
            unusable.append(one)
            continue
        row, host = one
        # processes do not share texts: without this, thousands of runs hold the same ones
        rows.append({**row, **{name: _interned(row[name]) for name in _TEXTS}})
        widest = max(widest, host, key=lambda host: len(host.get("ranks", ())))
    carried = [row["study_sha256"] for row in rows]
    kept = (folder / "study.toml").exists()
    frames, aside = _by_kind(rows, study)
    cell_of = {row["log"]: row["cell"] for row in rows}
    return Loaded(
        shipped=(folder / SHIPPED).exists(),
        study=study,
        fixed=kept and any(carried),
        changed=changed_study(study, carried) if kept else "",
        runs=frames["nothing"],
        observed=frames["breakdown"],
        unusable=(*unusable, *(Unusable(log, "ok", reason) for log, reason in aside.items())),
        # one that said nothing of itself is of the cell of the run that was done again
        superseded=tuple(
            replace(one, cell=one.cell or cell_of.get(ATTEMPT.sub("", one.log), ""))
            for one in superseded
        ),
        notes=notes,
        host=dict(widest),
    )


def _by_kind(rows: list[RunRow], study: Study) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """Split the runs that count by what watched them, and tell why others do not count."""
    aside = _copies(rows)
    rows = [row for row in rows if row["log"] not in aside]
    columns = ([row[name] for row in rows] for name in ("allocation", "hosts", "began_s"))
    for row, session in zip(rows, session_names(*columns), strict=True):
        row["session"] = session
    if not study.arms:
        _name_arms(rows)
    frames = {}
    for kind in ("nothing", "breakdown"):
        of_kind = [row for row in rows if kind == row["observe"]]
        for why in (_doubled, _mixed):
            aside |= why(pd.DataFrame([row for row in of_kind if row["log"] not in aside]))
        frames[kind] = pd.DataFrame([row for row in of_kind if row["log"] not in aside])
    return frames, aside


def _interned(texts: Mapping[str, str]) -> dict[str, str]:
    return {intern(k): intern(v) for k, v in texts.items()}


# what is kept of a usable log, and where it ran: all steps of all logs do not fit into memory
_Read = tuple[RunRow, Mapping[str, Any]]


def _read_all(paths: Sequence[Path], study: Study) -> Iterator[_Read | Unusable]:
    """Read logs in order; by as many processes as there are cores, where worth their start."""
    one = partial(_read_one, study=study)
    cores = len(os.sched_getaffinity(0))
    if cores == 1 or sum(map(size_bytes, paths)) < _WORTH_BYTES:
        yield from map(one, paths)
        return
    with ProcessPoolExecutor(cores, get_context("fork")) as pool:
        yield from pool.map(one, paths, chunksize=16)


def _read_one(path: Path, study: Study) -> _Read | Unusable:
    run = read_log(path)
    if isinstance(run, Unusable):
        return run
    assert run.config is not None
    try:
        # a log of another study is of this one's folder all the same: its notes tell
        arm = study.arm_of(run.config) if run.config.study == study.name else run.config.arm
    except ValueError as error:
        return Unusable(path.name, "ok", str(error), cell=run.config.cell)
    return row_of(run, arm or ""), run.host


def _name_arms(rows: Sequence[RunRow]) -> None:
    """Name the arms of runs that no study planned, by fields of the work in which they differ."""
    values = defaultdict(set)
    for row in rows:
        for name, value in _work(row).items():
            values[name].add(value)
    for row in rows:
        differing = (f"{k}={v}" for k, v in _work(row).items() if len(values[k]) > 1)
        row["arm"] = ", ".join(filter(None, (row["arm"], *differing)))


def _work(row: RunRow) -> comparability.Facts:
    varied = comparability.varied_of(row["facts"])
    return alone(varied) if row["cell"] == "single" else varied


def session_names(
    allocations: Sequence[str], hosts: Sequence[Sequence[str]], began_s: Sequence[float]
) -> list[str]:
    """Name the session of each run: its first start and its machine; '' where no log tells them.

    A session is of one boot, or of the same nodes under a scheduler, and ends where no run starts
    for PAUSE_S: hours change the state of a machine, and midnight does not.
    """
    names = [""] * len(began_s)
    last: dict[str, tuple[float, str]] = {}  # by machine: its last start, and the session
    known = [run for run, nodes in enumerate(hosts) if nodes and not math.isnan(began_s[run])]
    for run in sorted(known, key=began_s.__getitem__):
        boot = _EXECUTION.fullmatch(allocations[run])
        machine = boot[1] if boot else f"on {', '.join(hosts[run])}"
        before_s, session = last.get(machine, (-math.inf, ""))
        if began_s[run] - before_s >= PAUSE_S:
            session = f"{datetime.fromtimestamp(began_s[run], UTC):%Y-%m-%d %H:%M} {machine}"
        last[machine] = began_s[run], session
        names[run] = session
    return names


def tidy(loaded: Loaded) -> pd.DataFrame:
    """Prepare the runs for a notebook or a file: numbers and texts alone, no column of lists."""
    frame = loaded.runs.drop(columns=["facts", *OF_THE_ANALYSIS], errors="ignore")
    lists = [name for name in ("curves", "hosts") if name in frame]
    return frame.assign(**{name: frame[name].map(", ".join) for name in lists})


def _copies(rows: Iterable[RunRow]) -> dict[str, str]:
    """Set aside all but one log of the same processes; keep the one under its own name, if any."""
    same: dict[object, list[tuple[bool, str]]] = defaultdict(list)
    for row in rows:
        if row["processes"] is not None:
            same[row["processes"]].append((row["renamed"], row["log"]))
    aside: dict[str, str] = {}
    for (_, original), *others in map(sorted, same.values()):
        reason = "by the same processes, started at the same moment"
        aside |= {log: f"the same measurement as {original}: {reason}" for _, log in others}
    return aside


def _doubled(runs: pd.DataFrame) -> dict[str, str]:
    """Set aside copies from elsewhere: a study plans one run of each point in a block."""
    aside: dict[str, str] = {}
    planned = runs if runs.empty else runs[runs["position"].notna()]
    for _, group in by_point(planned):
        for block, same in group.groupby("block"):
            names = same[~same["renamed"]] if len(same) > 1 else same
            kept = names["log"].iloc[0] if len(names) == 1 else None
            why = f"block {block} of its point is there {len(same)} times"
            which = f"; {kept} has its own name and counts" if kept else ", so none counts"
            aside |= {log: why + which for log in same["log"] if log != kept}
    return aside


def _mixed(runs: pd.DataFrame) -> dict[str, str]:
    """Set aside all runs of a point whose work or conditions differ, as runs are averaged.

    A scheduler chooses nodes and cores for each job, so these may differ between jobs.
    """
    aside: dict[str, str] = {}
    for _, group in by_point(runs):
        facts = []
        for one, allocation in zip(group["facts"], group["allocation"], strict=True):
            apart = comparability.PER_JOB if allocation.startswith("job ") else ()
            facts.append({k: v for k, v in one.items() if k not in apart})
        if differing := comparability.differences(facts, comparability.PER_BLOCK):
            why = f"runs of its point differ: {'; '.join(differing)}"
            aside |= dict.fromkeys(group["log"], why)
    return aside


class NothingUsable(UsageError):
    """Logs are there, and none gives a number."""


def require(loaded: Loaded, folder: Path) -> None:
    """Raise NothingUsable where no run of the folder is a training's."""
    if loaded.runs.empty:
        raise NothingUsable(f"{folder}: {_nothing_trained(loaded)}")


def _nothing_trained(loaded: Loaded) -> str:
    kinds = {
        "of observed runs": loaded.observed,
    }
    usable = " and ".join(kind for kind, frame in kinds.items() if not frame.empty)
    only = f"only logs {usable} are usable; put training runs beside them"
    if usable and not loaded.unusable:
        return only
    counts = Counter(u.reason.splitlines()[0][:120] for u in loaded.unusable)
    most = [f"{n} x {reason}" for reason, n in counts.most_common(3)]
    most += [f"and {len(counts) - 3} other reasons"] if len(counts) > 3 else []
    none = f"none of {len(loaded.unusable)} logs is usable: {'; '.join(most)}"
    return f"{only} (of the others, {none})" if usable else none
