"""What a log must show before its numbers count: all that was asked for, consistently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from bench.config import RunConfig
from bench.record.events import PARTS
from bench.record.outcome import Event, last

# what an `end` must have found true
LOADED = ("samples_per_step", "torch_settings_kept")  # of a run that only loads, and of all others
CHECKS = (*LOADED, "loss_finite", "parameters_equal", "loss_bounded", "parity")
# of a run whose compute slept: it has no loss, and its gradients have a mean that is known
EMULATED = (*LOADED, "parameters_equal", "gradients_averaged")
TRAININGS_EQUAL = "trainings_equal"
# first schema that demands the check; every schema demands the others
_FIRST_SCHEMA = {"torch_settings_kept": 9}

# A window runs from one device sync to another, its steps from mark to mark inside it. On the host
# nothing lies between but the reading of the clock: at most 2.4e-5 of 934 windows measured on a
# shared machine. On a GPU the steps are the device's own events, and what lies between are the
# launch of the first and the host's waking up after the last, some tens of microseconds.
EDGES = {"cpu": 1e-3, "cuda": 1e-2}  # share of a window outside its steps
# A rank that loses its processor at an edge is away for some slices of the scheduler: 2.4 ms were
# seen with 4 ranks on 2 cores, more is possible. That is time the run really took, as between its
# steps; so it counts in the window and is no contradiction.
EDGES_S = 0.05
# by which steps may exceed their window: rounding; on a GPU the drift of two clocks
OVER = {"cpu": 1e-9, "cuda": 1e-2}


def wrong_world(config: RunConfig, host: Mapping[str, Any]) -> str | None:
    """Tell why the ranks that recorded themselves are not the world that was asked for."""
    ranks, world_size = [rank["rank"] for rank in host.get("ranks", ())], config.world_size
    if len(ranks) != world_size:
        return f"provenance of {len(ranks)} ranks, asked for {world_size}"
    if ranks != list(range(world_size)):
        numbers = ", ".join(map(str, ranks[:8]))
        return f"provenance of ranks {numbers}, asked for 0 to {world_size - 1}"
    return None


def missing(config: RunConfig, schema: int, events: Sequence[Event]) -> str | None:
    """Name in words the first demand that a log with a good end does not meet, or return None."""
    return next(_missing(config, schema, events), None)


def _missing(config: RunConfig, schema: int, events: Sequence[Event]) -> Iterator[str]:
    windows = [event for event in events if event["event"] == "window"]
    if [window["index"] for window in windows] != list(range(config.windows)):
        yield f"{len(windows)} windows of {config.windows}"
    if any(window["steps"] != config.steps_per_window for window in windows):
        yield f"a window has not {config.steps_per_window} steps"
    yield from _steps(config, [event for event in events if event["event"] == "steps"], windows)
    if any(len(window["input_seconds"]) != config.world_size for window in windows):
        yield "the input_seconds of some rank are missing"
    for window in windows:
        if max(window["input_seconds"]) > window["seconds"] * (1 + OVER[config.device]):
            lasted = f"window {window['index']} lasted {window['seconds']} s"
            yield f"{lasted}, and a rank waited longer for its batches"
    yield from _breakdown(config, [event for event in events if event["event"] == "breakdown"])
    yield from _trainings(config, events)
    work = next(event for event in events if event["event"] == "start")["workload"]
    if config.emulate is not None and not (work.get("emulated") and work.get("timeline_sha256")):
        yield "the digest of the timeline that was followed is missing"
    end = last(events, "end")
    checks = {c: False for c in _demanded(config) if _FIRST_SCHEMA.get(c, 0) <= schema}
    checks |= end.get("checks", {})
    if "parity" in checks and checks["parity"] is None and unproven(end):
        del checks["parity"]  # a report says so
    if failed := [name for name, passed in checks.items() if passed is not True]:
        yield f"failed checks: {', '.join(failed)}"
    samples = config.steps * config.samples_per_step
    if (counted := end.get("samples")) != samples:
        steps = f"{config.steps} steps of {config.samples_per_step}"
        yield f"{counted} samples, where {steps} are {samples}"


def unproven(end: Event) -> list[str]:
    """List the tensors of which a run could not prove that every rank got the mean."""
    return sorted({name for step in end.get("parity", ()) for name in step.get("not_proven", ())})


def _demanded(config: RunConfig) -> list[str]:
    """Name the checks of such a run; without exchange ranks must have drifted apart."""
    parted = {"parameters_equal": "parameters_differ"} if config.ranks_part else {}
    checks: tuple[str, ...] = CHECKS if config.emulate is None else EMULATED
    if not config.averages:
        checks = tuple(c for c in checks if c not in ("parity", "parameters_equal"))
    checks += () if config.epochs is None else (TRAININGS_EQUAL,)
    return [parted.get(name, name) for name in checks]


def _breakdown(config: RunConfig, breakdowns: Sequence[Event]) -> Iterator[str]:
    """Check that an observed run has the parts of every rank's steps, as many as the steps."""
    windows = 0 if config.observe == "nothing" else config.windows
    timed = [event for event in breakdowns if event["phase"] == "window"]
    if [event["index"] for event in timed] != list(range(windows)):
        yield "the breakdown of some window is missing, or there twice"
    shape = [config.steps_per_window] * config.world_size
    if any([*map(len, event[part])] != shape for event in timed for part in PARTS):
        yield "the breakdown of some rank is missing"


def _trainings(config: RunConfig, events: Sequence[Event]) -> Iterator[str]:
    """Check that each training has its epochs in order, the last of which is the first to reach the
    target, or the last that it was given.
    """
    epochs = [event for event in events if event["event"] == "epoch"]
    trainings = [list(group) for _, group in groupby(epochs, key=lambda event: event["training"])]
    count = 0 if config.epochs is None else config.trainings
    if [training[0]["training"] for training in trainings] != list(range(count)):
        yield f"{len(trainings)} trainings of {count}"
    work = next(event for event in events if event["event"] == "start")["workload"]
    size = work.get("steps_per_epoch"), work.get("held_out")
    for training in trainings:
        name = f"training {training[0]['training']}"
        numbers = [event["index"] for event in training]
        if numbers != list(range(len(numbers))):
            yield f"an epoch of {name} is missing, or there twice"
        for event in training:
            if (event["steps"], event["held_out"]) != size:
                yield f"an epoch of {name} is of another size"
            if event["correct"] > event["held_out"]:
                yield f"an epoch of {name} has more right than there are"
            right = event.get("own_correct", [])
            ranks = 0 if config.averages else config.world_size
            if len(right) != ranks or max(right, default=0) > event["held_out"]:
                yield f"an epoch of {name} lacks what each rank has right by itself"
            if not event["parameters_equal"]:
                yield f"after an epoch of {name} ranks had other parameters"
        reached = [config.reaches(event["correct"], event["held_out"]) for event in training]
        if any(reached[:-1]) or not (reached[-1] or len(reached) == config.epochs):
            yield f"{name} did not end where it should"


def _steps(config: RunConfig, steps: Sequence[Event], windows: Sequence[Event]) -> Iterator[str]:
    """Check that every rank's steps are there and make up the window that they were timed in."""
    phases = ("warmup", "lead_in", "window")
    warmup, lead_in, timed = ([e for e in steps if e["phase"] == phase] for phase in phases)
    window_indices = list(range(config.windows))
    if [event["index"] for event in timed] != window_indices:
        yield "the steps of some window are missing, or there twice"
    if [event["index"] for event in lead_in] != (window_indices if config.lead_in_steps else []):
        yield "the lead-in of some window is missing, or there twice"
    expected = [(event, config.warmup_steps) for event in warmup]
    expected += [(event, config.lead_in_steps) for event in lead_in]
    expected += [(event, config.steps_per_window) for event in timed]
    ranks = config.world_size
    if len(warmup) > 1 or any([*map(len, e["seconds"])] != [n] * ranks for e, n in expected):
        yield "the steps of some rank are missing"
    for window, event in zip(windows, timed, strict=True):
        seconds, slowest = window["seconds"], max(map(sum, event["seconds"]))
        most = seconds * (1 + OVER[config.device])
        least = seconds - max(EDGES[config.device] * seconds, EDGES_S)
        if not least <= slowest <= most:
            lasted = f"window {window['index']} lasted {seconds} s"
            yield f"{lasted}, and the steps of its slowest rank {slowest} s"
