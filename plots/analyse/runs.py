"""A study's runs as one tidy frame, one row each, with what is judged of every run by itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.record import Run
from bench.study.definition import Study
from plots.analyse import comparability, steady_state
from plots.analyse.comparability import NO_BLOCK
from plots.analyse.points import by_point
from plots.read.runs import Unusable, changed_study, find_logs, find_study, read_log, track

_OF_THE_CONFIG = (
    *("cell", "backend", "transport", "settings", "world_size", "seed", "position", "study"),
    *("samples_per_rank", "samples_per_step", "warmup_steps", "loader_only"),
)
CLOCK = ("began_s", "wall_s")  # of a run: seconds since 1970, and seconds with its launcher's
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A study's folder as read; `notes` says what had to be assumed."""

    study: Study
    fixed: bool  # whether runs carry the study as it was planned, so that a change would show
    changed: str  # what shows, '' if nothing
    runs: pd.DataFrame  # a row for each usable run that trained
    pipelines: pd.DataFrame  # and for each that only made batches
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
    for path in track(paths, "run logs read"):
        run = read_log(path)  # and let it go: all steps of all logs do not fit into memory
        if isinstance(run, Unusable):
            unusable.append(run)
        else:
            rows.append(_row(run))
            carried.append(run.config.study_sha256 if run.config else None)
            if run.processes is not None:
                written = run.config.log_path if run.config else None
                renamed = written is None or written.name != path.name
                measured[run.processes].append((renamed, path.name))
            widest = max(widest, run.host, key=lambda host: len(host.get("ranks", ())))
    aside = _copies(measured.values())
    rows = [row for row in rows if row["log"] not in aside]
    pipelines = [row for row in rows if row["loader_only"]]  # nothing was trained: never averaged
    rows = [row for row in rows if not row["loader_only"]]
    cells, facts = [row["cell"] for row in rows], [row["facts"] for row in rows]
    for row, variant in zip(rows, comparability.variants(cells, facts), strict=True):
        row["variant"] = variant
    aside |= _mixed(rows)
    kept = (folder / "study.toml").exists()
    changed = changed_study(study, carried) if kept else ""
    return Loaded(
        study=study,
        fixed=kept and any(carried),
        changed=changed,
        runs=pd.DataFrame([row for row in rows if row["log"] not in aside]),
        pipelines=pd.DataFrame(pipelines),
        unusable=(*unusable, *(Unusable(log, "ok", reason) for log, reason in aside.items())),
        superseded=tuple(superseded),
        notes=(*notes, f"{changed.capitalize()}.") if changed else notes,
        host=dict(widest),
    )


def tidy(loaded: Loaded) -> pd.DataFrame:
    """The runs for a notebook or a file: numbers and texts alone, no column that holds a list."""
    frame = loaded.runs.drop(columns=["facts", "loader_only", *CLOCK], errors="ignore")
    lists = [name for name in ("curves", "hosts", "variant") if name in frame]
    return frame.assign(**{name: frame[name].map(", ".join) for name in lists})


def _row(run: Run) -> Row:
    """One row of the frame; what plots.load_runs says of a column, and for the analysis `facts`."""
    config = run.config
    assert config is not None
    slowest = np.asarray(run.step_seconds()).max(axis=0)
    # a run by hand names no curve: a batch per rank is weak scaling, a global batch strong
    by_hand = ("weak",) if config.batch_per_rank is not None else ("strong",)
    median, p95, p99 = np.percentile(slowest, [50, 95, 99]).tolist()
    return {
        "log": run.path.name,
        **{name: getattr(config, name) for name in _OF_THE_CONFIG},
        "curves": config.curves or by_hand,
        "block": NO_BLOCK if config.block is None else config.block,
        "allocation": run.allocation,
        "hosts": run.hosts,
        "images_per_s": run.images_per_s,
        "step_seconds_mean": run.seconds_per_step,
        "step_seconds_median": median,
        "step_seconds_p95": p95,
        "step_seconds_p99": p99,
        "steps": len(slowest),
        **asdict(steady_state.judge(slowest)),
        "input_share": _input_share(run),
        "exit_code": run.exit.get("code"),
        "began_s": _began_s(run),
        "wall_s": run.exit.get("wall_s", math.nan),
        "parameters_sha256": run.end.get("parameters_sha256", ""),
        "facts": comparability.facts(config, run.host, run.end),
    }


def _began_s(run: Run) -> float:
    with suppress(LookupError, ValueError, OverflowError):  # older logs lack it
        return datetime.fromisoformat(run.host["started"]).timestamp()
    return math.nan


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


def _mixed(rows: list[Row]) -> dict[str, str]:
    """Runs of one point are averaged, so their work must agree; why the minority is set aside."""
    aside: dict[str, str] = {}
    for _, group in by_point(pd.DataFrame(rows)) if rows else ():
        others = zip(group["log"], comparability.against_most(group["facts"]), strict=True)
        aside |= {log: f"work differs from its point's other runs: {d}" for log, d in others if d}
    return aside
