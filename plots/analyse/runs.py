"""A study's runs as one tidy frame, one row each, with what is judged of every run by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.config import RunConfig
from bench.record import Run
from bench.study.definition import Study
from plots.analyse import comparability, steady_state
from plots.analyse.blocks import NO_BLOCK
from plots.read.runs import Unusable, read_folder


@dataclass(frozen=True, kw_only=True)
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
    """Read a study's folder; raises UsageError where there are no logs."""
    widest: Mapping[str, Any] = {}  # provenance of the run that saw most of the machine

    def keep(run: Run) -> tuple[dict[str, Any], object, bool]:
        """Its row, by which processes it was measured, and whether the log bears its own name."""
        nonlocal widest
        widest = max(widest, run.host, key=lambda host: len(host.get("ranks", ())))
        return _row(run), run.processes, _bears_its_name(run)

    found = read_folder(folder, keep)
    rows, copies = _set_copies_aside(found.kept)
    pipelines = [row for row in rows if row["loader_only"]]  # nothing was trained: never averaged
    rows = [row for row in rows if not row["loader_only"]]
    cells, facts = [row["cell"] for row in rows], [row["facts"] for row in rows]
    for row, variant in zip(rows, comparability.variants(cells, facts), strict=True):
        row["variant"] = variant
    rows, mixed = _set_mixed_aside(rows)
    return Loaded(
        study=found.study,
        runs=pd.DataFrame(rows),
        pipelines=pd.DataFrame(pipelines),
        unusable=(*found.unusable, *copies, *mixed),
        superseded=found.superseded,
        notes=found.notes,
        host=dict(widest),
    )


def tidy(loaded: Loaded) -> pd.DataFrame:
    """The runs for a notebook or a file: numbers and texts alone, no column that holds a list."""
    frame = loaded.runs.drop(columns=["facts", "loader_only"], errors="ignore")
    lists = [name for name in ("curves", "hosts", "variant") if name in frame]
    return frame.assign(**{name: frame[name].map(", ".join) for name in lists})


def _row(run: Run) -> dict[str, Any]:
    """One row of the frame; what plots.load_runs says of a column, and for the analysis `facts`."""
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
        "step_seconds_mean": run.seconds_per_step,
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
    measured: Sequence[tuple[dict[str, Any], object, bool]],
) -> tuple[list[dict[str, Any]], list[Unusable]]:
    """Logs of the same processes, started at the same moment, are one measurement, whatever block
    or name they bear.
    """
    original: dict[object, str] = {}
    for row, processes, _ in sorted(measured, key=lambda one: not one[2]):
        original.setdefault(processes, row["log"])
    kept, copies = [], []
    for row, processes, _ in measured:
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
