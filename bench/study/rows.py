"""One run as a row of a study's data frame: its config, its measurements and its facts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, groupby
from typing import Any

import numpy as np

from bench.backends.catalogue import facts as facts_of_backend
from bench.launch.machine import share_of_others
from bench.record import Run
from bench.record.events import PARTS, machine_of
from bench.study import comparability, stats
from bench.study.comparability import NO_LAUNCH

RunRow = dict[str, Any]
ENOUGH_STEPS, ENOUGH_WINDOWS = 10, 3  # timed, of a run; of fewer a warm-up cannot be told
_OF_THE_NODE = ("busy_jiffies", "idle_jiffies", "steal_jiffies")
_OWN = "own_jiffies"
_OF_THE_CONFIG = (
    *("cell", "backend", "transport", "settings", "world_size", "seed", "position", "study"),
    *("study_sha256", "model", "dataset", "precision"),
    *("warmup_steps", "lead_in_steps", "observe"),
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training from new weights, epoch by epoch."""

    log: str
    seed: int  # of its run
    index: int  # in its run
    seconds: tuple[float, ...]  # cumulative; without the judging
    accuracies: tuple[float, ...]  # shares of the held-out samples
    losses: tuple[float, ...]  # means of the epochs' steps
    reached: bool


def row_of(run: Run, arm: str) -> RunRow:
    """Make a run's row: the columns that plots.load_runs explains, and others for the analysis."""
    config, host, end = run.config, run.host, run.end
    assert config is not None
    facts = comparability.facts(config, host, end, run.workload)
    recorded = {
        f"{part}.{k}": str(v)
        for part in ("versions", "git", "env")
        for k, v in host.get(part, {}).items()
    }
    recorded |= {"platform": str(host["platform"])} if "platform" in host else {}
    began_s = math.nan
    with suppress(LookupError, ValueError, OverflowError):  # older logs lack it
        began_s = datetime.fromisoformat(host["started"]).timestamp()
    # a run by hand names no curve: a batch per rank is weak scaling, a global batch strong
    by_hand = ("weak",) if config.batch_per_rank is not None else ("strong",)

    def names(field: str) -> str:
        return ", ".join(sorted({str(one[field]) for one in host.get("ranks", ()) if field in one}))

    return {
        "log": run.path.name,
        **{name: getattr(config, name) for name in _OF_THE_CONFIG},
        "arm": arm,
        "batch_per_rank": config.samples_per_rank,
        "global_batch": config.samples_per_step,
        "curves": config.curves or by_hand,
        "launch": NO_LAUNCH if config.launch is None else config.launch,
        "allocation": run.allocation,
        "hosts": run.hosts,
        **_measured(run),
        "turns": run.exit.get("apart") or facts["turns"],
        "took_turns_in": host.get("turns", {}).get("launch", ""),
        "exit_code": run.exit.get("code"),
        "began_s": began_s,
        "wall_s": run.exit.get("wall_s", math.nan),
        "gradient_bytes": run.workload.get("gradient_bytes", math.nan),
        "parity_not_proven": len(run.parity_not_proven),
        "parameters_sha256": end.get("parameters_sha256", ""),
        "cpu": names("cpu"),
        "gpu": names("gpu"),
        "started": "" if math.isnan(began_s) else f"{datetime.fromtimestamp(began_s, UTC):%FT%TZ}",
        "emulated": config.emulate is not None,
        "timeline": facts[comparability.EMULATE] if comparability.is_emulated(facts) else "",
        "facts": facts,
        "recorded": recorded,
        "parts": parts_of(run),
        "trainings": _trainings(run),
        "served": _served(run),
        "resources": _resources(run),
    }


def _measured(run: Run) -> RunRow:
    """Return the speed of a run and what may disturb it, nan or None if the log does not say.

    `busy_share` is the share of core time that any process used on the busiest host. `input_share`
    is the share of time that a rank waited for batches, on the rank that waited longest.
    """
    windows = [_of_the_job(window) for window in run.steps("window")]
    steps = np.concatenate([np.empty(0), *windows])
    others = [seconds for window in windows for seconds in window[1:]]
    lead_in = [seconds for lead in run.steps("lead_in") for seconds in _of_the_job(lead)]

    def over_rest(some: Sequence[float]) -> float:
        return float(np.mean(some) / np.mean(others)) if some and others else math.nan

    p95, p99 = stats.percentiles(steps, (95, 99))
    first, last = (run.windows[i]["seconds"] / run.windows[i]["steps"] for i in (0, -1))
    waited = np.sum([window["input_seconds"] for window in run.windows], axis=0)
    busy = [window.get("busy_share") or [None] for window in run.windows]
    known = not any(share is None for shares in busy for share in shares)
    return {
        "images_per_s": run.images_per_s,
        "step_seconds_mean": run.step_seconds_mean,
        "step_seconds_median": float(np.median(steps)),
        "step_seconds_p95": p95,
        "step_seconds_p99": p99,
        "steps": len(steps),
        "windows": len(run.windows),
        "last_over_first": last / first,
        "lead_in_over_rest": over_rest(lead_in),
        "first_step_over_rest": over_rest([window[0] for window in windows]),
        "judged": len(steps) >= ENOUGH_STEPS and len(run.windows) >= ENOUGH_WINDOWS,
        "input_share": float(np.max(waited)) / sum(run.window_seconds),
        "others_share": others_share(run),
        "busy_share": float(np.average(np.max(busy, axis=1), weights=run.window_seconds))
        if known
        else None,
    }


def _of_the_job(window: Sequence[Sequence[float]]) -> np.ndarray:
    """Return the seconds of each step of a window, for all ranks together: [rank][step] to [step].

    A step ends when the last rank ends it, and the next step begins then, so all steps add up to
    the window. The maximum over ranks of each step's seconds would add up to more.
    """
    ends: np.ndarray = np.cumsum(window, axis=1).max(axis=0)
    ends[1:] = np.diff(ends)
    return ends


def others_share(run: Run) -> float | None:
    """Estimate the share of processor time that others took, on the host where it is largest.

    Others are processes outside the run, and other virtual machines on the host's hardware. Returns
    None if the log lacks a counter, or is of a parameter server before version 2.0.
    """
    if run.host.get("servers"):
        return None
    machines: dict[str, list[dict[str, int]]] = defaultdict(list)
    for index, rank in enumerate(run.host.get("ranks", ())):
        spent: dict[str, int] = {}
        for name in (*_OF_THE_NODE, _OWN):
            begun, ends = rank.get(name), run.end.get(name, ())
            if begun is None or index >= len(ends) or ends[index] is None:
                return None
            spent[name] = ends[index] - begun
        machines[machine_of(rank)].append(spent)
    shares = []
    for ranks in machines.values():  # each rank read its machine's counters
        busy, idle, stolen = (ranks[0][name] for name in _OF_THE_NODE)
        shares.append(share_of_others(busy, idle, stolen, sum(rank[_OWN] for rank in ranks)))
    return max(shares, default=None)


def parts_of(run: Run) -> dict[str, float]:
    """Return the mean seconds of each part of a step; {} unless observe='breakdown'.

    The part `exposed` is the exchange after a rank's last gradient, which nothing overlaps. It is
    split in two: `waiting` for the last gradient of the slowest rank, then `reducing`. Without an
    exchange, `waiting` is 0.
    """
    config = run.config
    assert config is not None
    windows = [e for e in run.events if e["event"] == "breakdown" and e["phase"] == "window"]
    if not windows:
        return {}
    means = {name: float(np.mean([event[name] for event in windows])) for name in PARTS}
    one_clock = config.device == "cpu" and len(run.hosts) == 1
    waits = [0.0 if config.ranks_part else _waiting(event, one_clock) for event in windows]
    waiting = float(np.mean(waits))
    return means | {"waiting": waiting, "reducing": means["exposed"] - waiting}


def _waiting(event: Mapping[str, Any], one_clock: bool) -> float:
    """Return how long a rank waits for the slowest rank's last gradient: mean seconds in a step.

    Without `one_clock`, the ranks' clocks are aligned first: in the median over steps, the exchange
    of each rank ends when rank 0's does.
    """
    before = ("begin", "input", "forward", "backward")
    last = np.sum([event[name] for name in before], axis=0)  # gradient: [rank][step]
    if not one_clock:
        end = last + np.asarray(event["exposed"])
        last -= np.median(end - end[0], axis=1, keepdims=True)
    return float(np.mean(last.max(axis=0) - last))


def _resources(run: Run) -> dict[str, float]:
    """Return known resources of a rank: peak memory in bytes, flops per image, peak flops/s."""
    config, end = run.config, run.end
    assert config is not None
    values = {
        "rank_memory_bytes": max(filter(None, end.get("peak_memory_bytes", ())), default=0),
        "device_memory_bytes": max(
            filter(None, end.get("peak_device_memory_bytes", ())), default=0
        ),
        "flops_per_image": end.get("flops_per_image") or 0.0,
        "peak_flops_per_s": 1e12 * (config.peak_tflops or 0.0),
    }
    return {name: float(value) for name, value in values.items() if value}


def _served(run: Run) -> dict[str, Any]:
    """Return images/s by rank, last accuracies by [training][rank]; {} if no parameter server."""
    config = run.config
    assert config is not None
    knobs = facts_of_backend(config.backend).knobs.get(config.settings, ())
    if config.exchange == "off" or "mode" not in knobs:
        return {}
    epochs = (event for event in run.events if event["event"] == "epoch")
    last = [list(of_one)[-1] for _, of_one in groupby(epochs, lambda event: event["training"])]
    return {
        "images_per_s": [config.samples_per_rank * len(s) / sum(s) for s in run.step_seconds()],
        "right": [
            np.divide(event["own_correct"], event["held_out"])
            for event in last
            if "own_correct" in event
        ],
    }


def _trainings(run: Run) -> tuple[Training, ...]:
    config, trainings = run.config, list[Training]()
    assert config is not None
    events = [event for event in run.events if event["event"] == "epoch"]
    for index, group in groupby(events, key=lambda event: int(event["training"])):
        epochs = list(group)
        trainings.append(
            Training(
                log=run.path.name,
                seed=config.seed,
                index=index,
                seconds=tuple(accumulate(event["seconds"] for event in epochs)),
                accuracies=tuple(event["correct"] / event["held_out"] for event in epochs),
                losses=tuple(float(event["loss"]) for event in epochs),
                reached=config.reaches(epochs[-1]["correct"], epochs[-1]["held_out"]),
            )
        )
    return tuple(trainings)
