"""A study's runs as one tidy frame, one row each, and why others have none."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from sys import intern
from typing import Any

import pandas as pd

from bench.config import Role, RunConfig, fields_with
from bench.record.archive import size_bytes
from bench.study.definition import Study
from bench.study.folder import SHIPPED
from plots.analyse import comparability, sessions, variants
from plots.analyse.points import by_point
from plots.analyse.row import Row, row_of
from plots.read.runs import (
    ATTEMPT,
    Unusable,
    as_planned,
    changed_study,
    find_logs,
    find_study,
    read_log,
    track,
)

CLOCK = ("began_s", "wall_s")  # of a run: seconds since 1970, and seconds with its launcher's
# columns for the analysis alone, or the same for all runs that count
OF_THE_ANALYSIS = (
    *("recorded", "sequence", "parts", "evidence", "trainings", "served"),
    *("renamed", "took_turns_in", *CLOCK, *fields_with(Role.APART)),
)
_TEXTS = ("facts", "recorded")
_WORTH_BYTES = 50_000_000  # of logs: below this other processes take longer to start than to read


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A study's folder as read; `notes` says what had to be assumed."""

    shipped: bool  # with the project: nothing is added to it
    study: Study
    fixed: bool  # whether runs carry the study as it was planned, so that a change would show
    changed: str  # what shows, '' if nothing
    runs: pd.DataFrame  # a row for each usable run that trained
    pipelines: pd.DataFrame  # and for each that only made batches
    observed: pd.DataFrame  # and for each whose steps were watched
    framework: pd.DataFrame  # and for each that its framework watched as well
    unusable: tuple[Unusable, ...]
    superseded: tuple[Unusable, ...]
    notes: tuple[str, ...]
    host: dict[str, Any]  # provenance of the run that saw most of the machine


def load(folder: Path) -> Loaded:
    """Read a study's folder; raises UsageError where there are no logs."""
    paths, superseded = find_logs(folder)
    study, notes = find_study(folder)
    rows: list[Row] = []
    measured: dict[object, list[tuple[bool, str]]] = defaultdict(list)
    unusable: list[Unusable] = []
    widest: Mapping[str, Any] = {}
    carried: list[str | None] = []
    for one in track(_read_all(paths, study), "run logs read", len(paths)):
        if isinstance(one, Unusable):
            unusable.append(one)
        else:
            # processes do not share texts: without this, thousands of runs hold the same ones
            rows.append({**one.row, **{name: _interned(one.row[name]) for name in _TEXTS}})
            carried.append(one.study_sha256)
            if one.processes is not None:
                measured[one.processes].append((one.row["renamed"], one.row["log"]))
            widest = max(widest, one.host, key=lambda host: len(host.get("ranks", ())))
    aside = _copies(measured.values())
    rows = [row for row in rows if row["log"] not in aside]
    columns = ([row[name] for row in rows] for name in ("allocation", "hosts", "began_s"))
    for row, session in zip(rows, sessions.named(*columns), strict=True):
        row["session"] = session
    pipelines = [row for row in rows if row["loader_only"]]  # nothing was trained: never averaged
    rows = [row for row in rows if not row["loader_only"]]  # with those that were observed
    _name_variants(rows, variants.fields_of(study, trained=True))
    _name_variants(pipelines, variants.fields_of(study))
    framework = [row for row in rows if row["observe"] == "framework"]
    observed = [row for row in rows if row["observe"] == "breakdown"]
    rows = [row for row in rows if row["observe"] == "nothing"]
    for frame in (rows, observed, framework, pipelines):
        aside |= _doubled(frame)
        aside |= _mixed([row for row in frame if row["log"] not in aside])
    kept = (folder / "study.toml").exists()
    changed = changed_study(study, carried) if kept else ""
    cell_of = {row["log"]: row["cell"] for row in rows}

    def counted(rows: Sequence[Row]) -> pd.DataFrame:
        return pd.DataFrame([row for row in rows if row["log"] not in aside])

    return Loaded(
        shipped=(folder / SHIPPED).exists(),
        study=as_planned(study, carried),
        fixed=kept and any(carried),
        changed=changed,
        runs=counted(rows),
        pipelines=counted(pipelines),
        observed=counted(observed),
        framework=counted(framework),
        unusable=(*unusable, *(Unusable(log, "ok", reason) for log, reason in aside.items())),
        # one that said nothing of itself is of the cell of the run that was done again
        superseded=tuple(
            replace(one, cell=one.cell or cell_of.get(ATTEMPT.sub("", one.log), ""))
            for one in superseded
        ),
        notes=notes,
        host=dict(widest),
    )


def _name_variants(rows: Sequence[Row], planned: Sequence[str]) -> None:
    cells, facts = [row["cell"] for row in rows], [row["facts"] for row in rows]
    for row, variant in zip(rows, variants.of_runs(cells, facts, planned), strict=True):
        row["variant"] = variant


def _interned(texts: Mapping[str, str]) -> dict[str, str]:
    return {intern(k): intern(v) for k, v in texts.items()}


@dataclass(frozen=True)
class _Read:
    """What is kept of a usable log: all steps of all logs do not fit into memory."""

    row: Row
    study_sha256: str | None
    processes: tuple[object, ...] | None
    host: Mapping[str, Any]


def _read_all(paths: Sequence[Path], study: Study) -> Iterator[_Read | Unusable]:
    """In their order; by as many processes as there are cores, where that is worth their start."""
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
    if other := _other_variant(run.config, study):
        return Unusable(path.name, "ok", other, cell=run.config.cell)
    written = run.config.log_path
    renamed = written is None or written.name != path.name
    return _Read(
        row={**row_of(run, study), "renamed": renamed},
        study_sha256=run.config.study_sha256,
        processes=run.processes,
        host=run.host,
    )


def _other_variant(config: RunConfig, study: Study) -> str:
    """In what a log is not of the variant and the arm that it names; '' if in nothing."""
    if config.study != study.name:
        return ""
    tables = (("variants", config.variant, study.variants), ("arms", config.arm, study.arms))
    for table, name, definitions in tables:
        if table == "variants" and name is not None and name not in definitions:
            return f"its variant={name!r} is none of the study's"
        # of one process alone the plan leaves out what means nothing to it
        unseen = comparability.OF_MANY if config.cell == "single" else ()
        for field, wanted in definitions.get(name or "", {}).items():
            value = getattr(config, field, wanted)
            same = value == wanted or (isinstance(value, Path) and value == Path(str(wanted)))
            if field not in unseen and not same:
                return f"its {field}={value}, and [{table}.{name}] of the study says {wanted}"
    return ""


def tidy(loaded: Loaded) -> pd.DataFrame:
    """The runs for a notebook or a file: numbers and texts alone, no column that holds a list."""
    frame = loaded.runs.drop(columns=["facts", *OF_THE_ANALYSIS], errors="ignore")
    if "variant" in frame:
        frame["variant"] = frame["variant"].map(variants.words)
    lists = [name for name in ("curves", "hosts", "variant") if name in frame]
    return frame.assign(**{name: frame[name].map(", ".join) for name in lists})


def _copies(measured: Iterable[list[tuple[bool, str]]]) -> dict[str, str]:
    """Logs by the same processes are one measurement: of (renamed, log) the first one counts."""
    aside: dict[str, str] = {}
    for logs in measured:
        (_, original), *others = sorted(logs)
        reason = "by the same processes, started at the same moment"
        aside |= {log: f"the same measurement as {original}: {reason}" for _, log in others}
    return aside


def _doubled(rows: list[Row]) -> dict[str, str]:
    """A study plans one run of each point in a block: a copy from elsewhere must not count too."""
    aside: dict[str, str] = {}
    planned = [row for row in rows if row["position"] is not None]
    for _, group in by_point(pd.DataFrame(planned)) if planned else ():
        for block, same in group.groupby("block"):
            names = same[~same["renamed"]] if len(same) > 1 else same
            kept = names["log"].iloc[0] if len(names) == 1 else None
            why = f"block {block} of its point is there {len(same)} times"
            which = f"; {kept} has its own name and counts" if kept else ", so none counts"
            aside |= {log: why + which for log in same["log"] if log != kept}
    return aside


def _mixed(rows: list[Row]) -> dict[str, str]:
    """Runs of one point are averaged, so their work and conditions must agree; why some do not."""
    aside: dict[str, str] = {}
    for _, group in by_point(pd.DataFrame(rows)) if rows else ():
        shared = [
            comparability.of_a_point(facts, scheduled=allocation.startswith("job "))
            for facts, allocation in zip(group["facts"], group["allocation"], strict=True)
        ]
        others = zip(group["log"], comparability.against_most(shared), strict=True)
        aside |= {log: f"differs from its point's other runs: {d}" for log, d in others if d}
    return aside
