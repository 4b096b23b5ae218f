"""Read a study's folder: complete runs become one tidy frame, everything else is listed with the
reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.config import RunConfig, UsageError
from bench.record import Run, read_run
from bench.study.definition import Study
from bench.study.files import salvage_study
from plots.analyse import comparability, steady_state
from plots.analyse.blocks import NO_BLOCK
from plots.read.progress import track

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


@dataclass(frozen=True)
class Loaded:
    """A study's folder as read: one row per usable run, in `runs` if it trained, in `pipelines` if
    it only made batches.

    `notes` says what had to be assumed.
    """

    study: Study
    runs: pd.DataFrame
    pipelines: pd.DataFrame
    unusable: tuple[Unusable, ...]
    superseded: tuple[Unusable, ...]
    notes: tuple[str, ...]
    host: dict[str, Any]


def load(folder: Path) -> Loaded:
    """Read FOLDER/study.toml and FOLDER/runs/*.jsonl (or FOLDER/*.jsonl); raises UsageError where
    there are no logs.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a study's folder, results/STUDY")
    study, notes = _study(folder)
    place = folder / "runs" if (folder / "runs").is_dir() else folder
    paths = sorted(place.glob("*.jsonl"))
    if not paths:
        raise UsageError(f"{place}: holds no run logs (*.jsonl); run the study first")
    old = [p for p in paths if ATTEMPT.search(p.name)]
    new = [p for p in paths if not ATTEMPT.search(p.name)]
    rows: list[dict[str, Any]] = []
    widest: Mapping[str, Any] = {}  # provenance of the run that saw most of the machine
    unusable: list[Unusable] = []
    measured: list[
        tuple[object, bool]
    ] = []  # per row by which processes, and whether the log bears its own run's name
    for path in track(new, "run logs read"):
        run = read_log(path)
        if isinstance(run, Unusable):
            unusable.append(run)
            continue
        rows.append(_row(run))
        measured.append((run.processes, _bears_its_name(run)))
        widest = max(widest, run.host, key=lambda host: len(host.get("ranks", ())))
    rows, copies = _set_copies_aside(rows, measured)
    pipelines = [
        row for row in rows if row["loader_only"]
    ]  # nothing was trained: never averaged with what was
    rows = [row for row in rows if not row["loader_only"]]
    for row, variant in zip(rows, comparability.variants(rows), strict=True):
        row["variant"] = variant
    rows, mixed = _set_mixed_aside(rows)
    superseded = tuple(_superseded(path) for path in old)
    frames = pd.DataFrame(rows), pd.DataFrame(pipelines)
    return Loaded(study, *frames, (*unusable, *copies, *mixed), superseded, notes, dict(widest))


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


def _row(run: Run) -> dict[str, Any]:
    """One row of the frame. Step columns: seconds of the slowest rank of each step.

    step_seconds_mean alone comes from the windows: it is the throughput's inverse, samples_per_step
    / images_per_s.
    """
    config = run.config
    assert config is not None
    slowest = np.asarray(run.step_seconds()).max(axis=0)
    judged = steady_state.judge(slowest)
    median, p95, p99 = (float(q) for q in np.percentile(slowest, [50, 95, 99]))
    return {
        "log": run.path.name,
        **{
            k: getattr(config, k)
            for k in (
                "cell",
                "backend",
                "transport",
                "settings",
                "world_size",
                "seed",
                "position",
                "study",
            )
        },
        **{
            k: getattr(config, k)
            for k in ("samples_per_rank", "samples_per_step", "warmup_steps", "loader_only")
        },
        "curves": _curves(config),
        "block": NO_BLOCK if config.block is None else config.block,
        "allocation": run.allocation,
        "hosts": run.hosts,
        "images_per_s": run.images_per_s,
        "step_seconds_mean": config.samples_per_step / run.images_per_s,
        "step_seconds_median": median,
        "step_seconds_p95": p95,
        "step_seconds_p99": p99,
        "steps": len(slowest),
        "steady": judged.steady,
        "not_steady_reason": judged.reason,
        "mser_cut_steps": judged.mser_cut_steps,
        "level_shift": judged.level_shift,
        "outlier_steps": judged.outlier_steps,
        "input_share": _input_share(run),
        "exit_code": run.exit.get("code"),
        "parameters_sha256": run.end.get("parameters_sha256", ""),
        "facts": comparability.facts(config, run.host, run.end),
    }


def _bears_its_name(run: Run) -> bool:
    return (
        run.config is not None
        and run.config.log_path is not None
        and run.config.log_path.name == run.path.name
    )


def _set_copies_aside(
    rows: Sequence[dict[str, Any]], measured: Sequence[tuple[object, bool]]
) -> tuple[list[dict[str, Any]], list[Unusable]]:
    """Logs of the same processes, started at the same moment, are one measurement, whatever block
    or name they bear.
    """
    original: dict[object, str] = {}
    for row, (processes, _) in sorted(
        zip(rows, measured, strict=True), key=lambda pair: not pair[1][1]
    ):
        original.setdefault(processes, row["log"])
    kept, copies = [], []
    for row, (processes, _) in zip(rows, measured, strict=True):
        if processes is None or original[processes] == row["log"]:
            kept.append(row)
        else:
            reason = (
                f"the same measurement as {original[processes]}: by the same processes, "
                f"started at the same moment"
            )
            copies.append(Unusable(row["log"], "ok", reason))
    return kept, copies


def _input_share(run: Run) -> float | None:
    """Share of the windows' time that a rank waited for its batches, of the rank that waited most;
    None in older logs.
    """
    if not all("input_seconds" in w for w in run.windows):
        return None
    waited = np.sum([w["input_seconds"] for w in run.windows], axis=0)
    return float(np.max(waited)) / sum(run.window_seconds)


def _curves(config: RunConfig) -> tuple[str, ...]:
    """A run by hand names no curve: a batch per rank is weak scaling, a global batch strong."""
    return config.curves or (("weak",) if config.batch_per_rank is not None else ("strong",))


def _set_mixed_aside(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Unusable]]:
    """Runs of one point are averaged, so their work must agree; the minority is set aside. Seeds
    may differ by block.
    """
    points: dict[tuple[object, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        points[
            tuple(row[k] for k in ("cell", "settings", "world_size", "samples_per_rank", "variant"))
        ].append(row)
    kept, aside = [], []
    for group in points.values():
        for row, other in zip(
            group, comparability.against_most([r["facts"] for r in group]), strict=True
        ):
            kept += [] if other else [row]
            aside += (
                [
                    Unusable(
                        row["log"],
                        "ok",
                        "work differs from its point's other runs: " + "; ".join(other),
                    )
                ]
                if other
                else []
            )
    return sorted(kept, key=lambda r: r["log"]), aside
