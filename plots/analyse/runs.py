"""A study's runs as one tidy frame, one row each, with what is judged of every run by itself."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import pandas as pd

from bench.config import Role, RunConfig, fields_with
from bench.record import Run
from bench.study import stats
from bench.study.definition import Study
from bench.study.folder import SHIPPED
from plots.analyse import breakdown, comparability, served, sessions, steady_state, trainings
from plots.analyse.comparability import NO_BLOCK
from plots.analyse.points import by_point
from plots.analyse.quiet import others_share
from plots.analyse.steady_state import ENOUGH_STEPS, ENOUGH_WINDOWS
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

_OF_THE_CONFIG = (
    *("cell", "backend", "transport", "settings", "world_size", "seed", "position", "study"),
    *("model", "dataset", "precision"),
    *(
        "samples_per_rank",
        "samples_per_step",
        "warmup_steps",
        "lead_in_steps",
        *fields_with(Role.APART),
    ),
)
CLOCK = ("began_s", "wall_s")  # of a run: seconds since 1970, and seconds with its launcher's
# columns for the analysis alone, or the same for all runs that count
OF_THE_ANALYSIS = (
    *("recorded", "sequence", "parts", "evidence", "trainings", "served"),
    *("renamed", *CLOCK, *fields_with(Role.APART)),
)
_TEXTS = ("facts", "recorded")
_WORTH_BYTES = 50_000_000  # of logs: below this other processes take longer to start than to read
Row = dict[str, Any]


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
    told = ([row[name] for row in rows] for name in ("allocation", "hosts", "began_s"))
    for row, session in zip(rows, sessions.named(*told), strict=True):
        row["session"] = session
    pipelines = [row for row in rows if row["loader_only"]]  # nothing was trained: never averaged
    rows = [row for row in rows if not row["loader_only"]]  # with those that were observed
    for frame in (rows, pipelines):
        _name_variants(frame, study)
    framework = [row for row in rows if row["observe"] == "framework"]
    observed = [row for row in rows if row["observe"] == "breakdown"]
    rows = [row for row in rows if row["observe"] == "nothing"]
    for frame in (rows, observed, framework, pipelines):
        aside |= _doubled(frame)
        aside |= _mixed([row for row in frame if row["log"] not in aside])
    kept = (folder / "study.toml").exists()
    changed = changed_study(study, carried) if kept else ""
    cell_of = {row["log"]: row["cell"] for row in rows}
    return Loaded(
        shipped=(folder / SHIPPED).exists(),
        study=as_planned(study, carried),
        fixed=kept and any(carried),
        changed=changed,
        runs=pd.DataFrame([row for row in rows if row["log"] not in aside]),
        pipelines=pd.DataFrame([row for row in pipelines if row["log"] not in aside]),
        observed=pd.DataFrame([row for row in observed if row["log"] not in aside]),
        framework=pd.DataFrame([row for row in framework if row["log"] not in aside]),
        unusable=(*unusable, *(Unusable(log, "ok", reason) for log, reason in aside.items())),
        # one that said nothing of itself is of the cell of the run that was done again
        superseded=tuple(
            replace(one, cell=one.cell or cell_of.get(ATTEMPT.sub("", one.log), ""))
            for one in superseded
        ),
        notes=notes,
        host=dict(widest),
    )


def _name_variants(rows: Sequence[Row], study: Study) -> None:
    cells, facts = [row["cell"] for row in rows], [row["facts"] for row in rows]
    named = comparability.of_variants(study)
    for row, variant in zip(rows, comparability.variants(cells, facts, named), strict=True):
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
    if cores == 1 or sum(path.stat().st_size for path in paths) < _WORTH_BYTES:
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
        row={**_row(run, study), "renamed": renamed},
        study_sha256=run.config.study_sha256,
        processes=run.processes,
        host=run.host,
    )


def _other_variant(config: RunConfig, study: Study) -> str:
    """In what a log is not of the variant and the arm that it names; '' if in nothing."""
    if config.study != study.name:
        return ""
    tables = (("variants", config.variant, study.variants), ("arms", config.arm, study.arms))
    for table, name, given in tables:
        if table == "variants" and name is not None and name not in given:
            return f"its variant={name!r} is none of the study's"
        # of one process alone the plan leaves out what means nothing to it
        unseen = comparability.OF_MANY if config.cell == "single" else ()
        for field, wanted in given.get(name or "", {}).items():
            value = getattr(config, field, wanted)
            same = value == wanted or (isinstance(value, Path) and value == Path(str(wanted)))
            if field not in unseen and not same:
                return f"its {field}={value}, and [{table}.{name}] of the study says {wanted}"
    return ""


def tidy(loaded: Loaded) -> pd.DataFrame:
    """The runs for a notebook or a file: numbers and texts alone, no column that holds a list."""
    frame = loaded.runs.drop(columns=["facts", *OF_THE_ANALYSIS], errors="ignore")
    lists = [name for name in ("curves", "hosts", "variant") if name in frame]
    return frame.assign(**{name: frame[name].map(", ".join) for name in lists})


def _row(run: Run, study: Study) -> Row:
    """One row of the frame; what plots.load_runs says of a column, and for the analysis `facts`."""
    config = run.config
    assert config is not None
    steps, before = (
        np.concatenate([np.empty(0), *map(_of_the_job, run.steps(phase))])
        for phase in ("window", "warmup")
    )
    p95, p99 = stats.percentiles(steps, (95, 99))
    of_the_arm = study.arms.get(config.arm or "", ())
    of_variants = comparability.of_variants(study)
    facts = comparability.facts(config, run.host, run.end, run.workload, of_the_arm, of_variants)
    # a run by hand names no curve: a batch per rank is weak scaling, a global batch strong
    by_hand = ("weak",) if config.batch_per_rank is not None else ("strong",)
    return {
        "log": run.path.name,
        **{name: getattr(config, name) for name in _OF_THE_CONFIG},
        "curves": config.curves or by_hand,
        "block": NO_BLOCK if config.block is None else config.block,
        "allocation": run.allocation,
        "hosts": run.hosts,
        "images_per_s": run.images_per_s,
        "step_seconds_mean": run.seconds_per_step,
        "step_seconds_median": float(np.median(steps)),
        "step_seconds_p95": p95,
        "step_seconds_p99": p99,
        "steps": len(steps),
        "windows": len(run.windows),
        "last_over_first": _last_over_first(run),
        **_beginnings(run),
        "judged": len(steps) >= ENOUGH_STEPS and len(run.windows) >= ENOUGH_WINDOWS,
        **asdict(steady_state.judge(steps)),
        "input_share": _input_share(run),
        "others_share": others_share(run),
        "busy_share": _busy_share(run),
        "turns": run.exit.get("apart") or facts["turns"],
        "exit_code": run.exit.get("code"),
        "began_s": _began_s(run),
        "wall_s": run.exit.get("wall_s", math.nan),
        "gradient_bytes": run.workload.get("gradient_bytes", math.nan),
        "parameters_sha256": run.end.get("parameters_sha256", ""),
        "cpu": _names(run, "cpu"),
        "gpu": _names(run, "gpu"),
        "started": _started(run),
        "emulated": config.emulate is not None,
        "timeline": _timeline(facts),
        "facts": facts,
        "recorded": _recorded(run.host),
        # many runs: half the size
        "sequence": np.concatenate([before, steps]).astype(np.float32),
        "parts": breakdown.parts_of(run),
        "evidence": breakdown.evidence_of(run),
        "trainings": trainings.of_run(run),
        "served": served.of_run(run),
    }


def _recorded(host: Mapping[str, Any]) -> dict[str, str]:
    """Where and with what a run says it ran, as 'part.name' -> text."""
    parts = ("versions", "git", "env")
    named = {f"{part}.{k}": str(v) for part in parts for k, v in host.get(part, {}).items()}
    return named | ({"platform": str(host["platform"])} if "platform" in host else {})


def _last_over_first(run: Run) -> float:
    """Seconds of a step in the last window over those in the first."""
    first, last = (run.windows[i]["seconds"] / run.windows[i]["steps"] for i in (0, -1))
    return float(last / first)


def _of_the_job(window: Sequence[Sequence[float]]) -> np.ndarray:
    """Seconds of a window's steps, [step] from [rank][step]: from when the last rank ended one to
    when the last rank ended the next.

    They add up to the window's seconds. The slowest rank's of each step would add up to more: ranks
    are late by turns, and a rank's own step after its late one is short. All ranks start a window
    together, so a rank's own first step lacks the wait for those that were late in the step before.
    """
    return np.diff(np.cumsum(window, axis=1).max(axis=0), prepend=0.0)


def _beginnings(run: Run) -> dict[str, float]:
    """Mean seconds of the steps before a window, and of its first one, over those of its others;
    nan where there are none.
    """
    windows = [_of_the_job(window) for window in run.steps("window")]
    others = [seconds for window in windows for seconds in window[1:]]
    steps = {
        "lead_in_over_rest": [s for lead in run.steps("lead_in") for s in _of_the_job(lead)],
        "first_step_over_rest": [window[0] for window in windows],
    }
    return {
        name: float(np.mean(some) / np.mean(others)) if some and others else math.nan
        for name, some in steps.items()
    }


def _began_s(run: Run) -> float:
    with suppress(LookupError, ValueError, OverflowError):  # older logs lack it
        return datetime.fromisoformat(run.host["started"]).timestamp()
    return math.nan


def _started(run: Run) -> str:
    """To the second; '' where a log does not say."""
    began_s = _began_s(run)
    return "" if math.isnan(began_s) else f"{datetime.fromtimestamp(began_s, UTC):%FT%TZ}"


def _names(run: Run, what: str) -> str:
    """The processors or GPUs of all ranks."""
    ranks = run.host.get("ranks", ())
    return ", ".join(sorted({str(rank[what]) for rank in ranks if what in rank}))


def _timeline(facts: comparability.Facts) -> str:
    """What an emulated run followed, a name and the head of its digest."""
    said = (facts.get(of + comparability.EMULATE) for of in ("", comparability.OF_THE_ARM))
    found = next(filter(None, said), "")
    return "" if found == comparability.usual(comparability.EMULATE) else found


def _copies(measured: Iterable[list[tuple[bool, str]]]) -> dict[str, str]:
    """Logs by the same processes are one measurement: of (renamed, log) the first one counts."""
    aside: dict[str, str] = {}
    for logs in measured:
        (_, original), *others = sorted(logs)
        reason = "by the same processes, started at the same moment"
        aside |= {log: f"the same measurement as {original}: {reason}" for _, log in others}
    return aside


def _input_share(run: Run) -> float | None:
    """Share of the windows' time that the rank that waited most did; logs of schema 1 have none."""
    if not all("input_seconds" in w for w in run.windows):
        return None
    waited = np.sum([w["input_seconds"] for w in run.windows], axis=0)
    return float(np.max(waited)) / sum(run.window_seconds)


def _busy_share(run: Run) -> float | None:
    """Share of the windows' time that the cores of the busiest host worked, for whomever; None
    where a log does not say.
    """
    told = [window.get("busy_share") or [None] for window in run.windows]
    if any(share is None for shares in told for share in shares):
        return None
    return float(np.average(np.max(told, axis=1), weights=run.window_seconds))


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
