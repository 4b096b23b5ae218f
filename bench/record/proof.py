"""What a log must show before its numbers count: all that was asked for, consistently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.config import RunConfig

CHECKS = (
    "samples_per_step",
    "loss_finite",
    "parameters_equal",
    "loss_bounded",
)  # what an `end` must have found true
_FIRST_SCHEMA = {"loss_bounded": 4}  # that demands the check; the others are as old as the log

# A window runs from one device sync to another, its steps from mark to mark inside it. On the host
# nothing lies between but the reading of the clock: at most 2.4e-5 of 934 windows measured on a
# shared machine. On a GPU the steps are the device's own events, and what lies between are the
# launch of the first and the host's waking up after the last, some tens of microseconds.
EDGES = {"cpu": 1e-3, "cuda": 1e-2}  # share of a window outside its steps
# A rank that loses its processor at an edge is away for some slices of the scheduler: 2.4 ms were
# seen with 4 ranks on 2 cores, more is possible. That is time the run really took, as between its
# steps; so it counts in the window and is no contradiction.
EDGES_S = 0.05
OVER = {
    "cpu": 1e-9,
    "cuda": 1e-2,
}  # by which steps may exceed their window: rounding; on a GPU the drift of two clocks

Event = Mapping[str, Any]


def wrong_world(config: RunConfig, host: Mapping[str, Any]) -> str | None:
    """Why the ranks that recorded themselves are not the world that was asked for."""
    ranks = [rank["rank"] for rank in host.get("ranks", ())]
    if len(ranks) != config.world_size:
        return f"provenance of {len(ranks)} ranks, asked for {config.world_size}"
    if ranks != list(range(config.world_size)):
        return (
            f"provenance of ranks {', '.join(map(str, ranks[:8]))}, asked for 0 to "
            f"{config.world_size - 1}"
        )
    return None


def missing(config: RunConfig, schema: int, events: Sequence[Event]) -> str | None:
    """The first thing that a log with a good end does not show, or contradicts; or None."""
    end = next(event for event in events if event["event"] == "end")
    windows = [event for event in events if event["event"] == "window"]
    if [window["index"] for window in windows] != list(range(config.windows)):
        return f"{len(windows)} windows of {config.windows}"
    if any(window["steps"] != config.steps_per_window for window in windows):
        return f"a window has not {config.steps_per_window} steps"
    return (
        _steps(config, [event for event in events if event["event"] == "steps"], windows)
        or _input(config, windows)
        or _failed(
            end,
            [
                c
                for c in CHECKS[: 1 if config.loader_only else None]
                if _FIRST_SCHEMA.get(c, 1) <= schema
            ],
        )
        or _samples(config, end)
    )


def _steps(config: RunConfig, steps: Sequence[Event], windows: Sequence[Event]) -> str | None:
    """Every rank's steps are there, and make up the window that they were timed in."""
    warmup = [event for event in steps if event["phase"] == "warmup"]
    timed = [event for event in steps if event["phase"] == "window"]
    if [event["index"] for event in timed] != list(range(config.windows)):
        return "the steps of some window are missing, or there twice"
    shapes = [
        *((event, config.warmup_steps) for event in warmup),
        *((event, config.steps_per_window) for event in timed),
    ]
    if len(warmup) > 1 or any(
        [len(rank) for rank in e["seconds"]] != [n] * config.world_size for e, n in shapes
    ):
        return "the steps of some rank are missing"
    for window, event in zip(windows, timed, strict=True):
        seconds, slowest = window["seconds"], max(map(sum, event["seconds"]))
        most = seconds * (1 + OVER[config.device])
        least = seconds - max(EDGES[config.device] * seconds, EDGES_S)
        if not least <= slowest <= most:
            return (
                f"window {window['index']} lasted {seconds} s, and the steps of its slowest "
                f"rank {slowest} s"
            )
    return None


def _input(config: RunConfig, windows: Sequence[Event]) -> str | None:
    """No rank waited longer for its batches than the window lasted; schema 1 does not say."""
    told = [window for window in windows if "input_seconds" in window]
    if len(told) not in (0, len(windows)) or any(
        len(w["input_seconds"]) != config.world_size for w in told
    ):
        return "the input_seconds of some rank are missing"
    for window in told:
        if max(window["input_seconds"]) > window["seconds"] * (1 + OVER[config.device]):
            return (
                f"window {window['index']} lasted {window['seconds']} s, and a rank waited "
                f"longer for its batches"
            )
    return None


def _samples(config: RunConfig, end: Event) -> str | None:
    asked = config.steps * config.samples_per_step
    if end.get("samples") != asked:
        return (
            f"{end.get('samples')} samples, where {config.steps} steps of "
            f"{config.samples_per_step} are {asked}"
        )
    return None


def _failed(end: Event, checks: Sequence[str]) -> str | None:
    found = {**dict.fromkeys(checks, False), **end.get("checks", {})}
    failed = [name for name, passed in found.items() if passed is not True]
    return f"failed checks: {', '.join(failed)}" if failed else None
