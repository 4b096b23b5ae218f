"""One run as a row of the frame: what was asked, what it measured, what is judged of it alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np

from bench.config import Role, fields_with
from bench.record import Run
from bench.study import stats
from plots.analyse import (
    breakdown,
    comparability,
    resources,
    served,
    trainings,
)
from plots.analyse.comparability import NO_BLOCK
from plots.analyse.quiet import others_share
from plots.analyse.steady_state import ENOUGH_STEPS, ENOUGH_WINDOWS

RunRow = dict[str, Any]
_OF_THE_CONFIG = (
    *("cell", "backend", "transport", "settings", "world_size", "seed", "position", "study"),
    "study_sha256",
    *("model", "dataset", "precision"),
    *("warmup_steps", "lead_in_steps", *fields_with(Role.APART)),
)


def row_of(run: Run, arm: str) -> RunRow:
    """Make a frame's row: what plots.load_runs says of a column, and for the analysis `facts`."""
    config = run.config
    assert config is not None
    steps = np.concatenate([np.empty(0), *map(_of_the_job, run.steps("window"))])
    facts = comparability.facts(config, run.host, run.end, run.workload)
    # a run by hand names no curve: a batch per rank is weak scaling, a global batch strong
    by_hand = ("weak",) if config.batch_per_rank is not None else ("strong",)
    written = config.log_path
    return {
        "log": run.path.name,
        **{name: getattr(config, name) for name in _OF_THE_CONFIG},
        "arm": arm,
        "batch_per_rank": config.samples_per_rank,
        "global_batch": config.samples_per_step,
        "curves": config.curves or by_hand,
        "block": NO_BLOCK if config.block is None else config.block,
        "allocation": run.allocation,
        "hosts": run.hosts,
        **_measured(run, steps),
        "turns": run.exit.get("apart") or facts["turns"],
        "took_turns_in": run.host.get("turns", {}).get("launch", ""),
        **_origin(run),
        "emulated": config.emulate is not None,
        "timeline": _timeline(facts),
        "facts": facts,
        "recorded": _recorded(run.host),
        "parts": breakdown.parts_of(run),
        "trainings": trainings.of_run(run),
        "served": served.of_run(run),
        "resources": resources.of_run(run),
        "processes": run.processes,
        "renamed": written is None or written.name != run.path.name,
    }


def _origin(run: Run) -> RunRow:
    """Tell when and on what a run ran, and how it ended."""
    return {
        "exit_code": run.exit.get("code"),
        "began_s": _began_s(run),
        "wall_s": run.exit.get("wall_s", math.nan),
        "exchanged_bytes": sum(run.end.get("exchange_bytes", ()))
        or run.workload.get("gradient_bytes", math.nan),
        "gradient_bytes": run.workload.get("gradient_bytes", math.nan),
        "parity_not_proven": len(run.parity_not_proven),
        "parameters_sha256": run.end.get("parameters_sha256", ""),
        "machines": run.machines,
        "cpu": _names(run, "cpu"),
        "gpu": _names(run, "gpu"),
        "started": _started(run),
    }


def _measured(run: Run, steps: np.ndarray) -> RunRow:
    """Measure the speed, and what may disturb it; `steps` are seconds of the job, timed."""
    p95, p99 = stats.percentiles(steps, (95, 99))
    first, last = (run.windows[i]["seconds"] / run.windows[i]["steps"] for i in (0, -1))
    return {
        "images_per_s": run.images_per_s,
        "step_seconds_mean": run.seconds_per_step,
        "step_seconds_median": float(np.median(steps)),
        "step_seconds_p95": p95,
        "step_seconds_p99": p99,
        "steps": len(steps),
        "windows": len(run.windows),
        "last_over_first": last / first,
        **_beginnings(run),
        "judged": len(steps) >= ENOUGH_STEPS and len(run.windows) >= ENOUGH_WINDOWS,
        "input_share": _input_share(run),
        "others_share": others_share(run),
        "busy_share": _busy_share(run),
    }


def _recorded(host: Mapping[str, Any]) -> dict[str, str]:
    """Read where and with what a run says it ran, as 'part.name' -> text."""
    parts = ("versions", "git", "env")
    named = {f"{part}.{k}": str(v) for part in parts for k, v in host.get(part, {}).items()}
    return named | ({"platform": str(host["platform"])} if "platform" in host else {})


def _of_the_job(window: Sequence[Sequence[float]]) -> np.ndarray:
    """Compute seconds of a window's steps, [step] from [rank][step]: from when the last rank ended
    one to when the last rank ended the next.

    They add up to the window's seconds. The slowest rank's of each step would add up to more: ranks
    are late by turns, and a rank's own step after its late one is short. All ranks start a window
    together, so a rank's own first step lacks the wait for those that were late in the step before.
    """
    return np.diff(np.cumsum(window, axis=1).max(axis=0), prepend=0.0)


def _beginnings(run: Run) -> dict[str, float]:
    """Divide the mean seconds of the steps before a window, and of its first one, by those of its
    others; nan where there are none.
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
    """Write when a run started, to the second; '' where a log does not say."""
    began_s = _began_s(run)
    return "" if math.isnan(began_s) else f"{datetime.fromtimestamp(began_s, UTC):%FT%TZ}"


def _names(run: Run, field: str) -> str:
    """Name the processors or GPUs of all ranks."""
    ranks = run.host.get("ranks", ())
    return ", ".join(sorted({str(rank[field]) for rank in ranks if field in rank}))


def _timeline(facts: comparability.Facts) -> str:
    """Name the timeline that an emulated run followed, and the head of its digest."""
    return facts[comparability.EMULATE] if comparability.is_emulated(facts) else ""


def _input_share(run: Run) -> float:
    """Compute the share of the windows' time for which the rank that waited most did so."""
    waited = np.sum([w["input_seconds"] for w in run.windows], axis=0)
    return float(np.max(waited)) / sum(run.window_seconds)


def _busy_share(run: Run) -> float | None:
    """Compute the share of the windows' time that the busiest host's cores worked, for whomever;
    None where a log does not say.
    """
    by_window = [window.get("busy_share") or [None] for window in run.windows]
    if any(share is None for shares in by_window for share in shares):
        return None
    return float(np.average(np.max(by_window, axis=1), weights=run.window_seconds))
