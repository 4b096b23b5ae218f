"""Judgement of a run by its log: state, reason, ranks' messages, and what an ok log must show."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bench.config import RunConfig
from bench.launch.world import WrongWorld
from bench.record.events import PARTS

# A planned run has no log yet; every other state is a log's.
STATES: tuple[str, ...] = ("ok", "running", "planned", "failed", "timed out", "interrupted")
STATES += ("out of memory", "node lost", "wrong world")
Event = Mapping[str, Any]

# What a rank says of its own memory: Python, numpy, C++, torch on the host, torch on a GPU.
_RANK_MEMORY = re.compile(
    r"(?i)MemoryError\b|\bbad_alloc\b|can't allocate memory|Cannot allocate memory|"
    r"CUDA (error: )?out of memory"
)
# What Slurm's step daemon (for the kernel's cgroup, or its own limit) and srun say of a rank.
_LAUNCHER_MEMORY = re.compile(
    r"(?i)error: .*(\boom[-_]kill|exceeded (job |step )?memory limit|OUT_OF_MEMORY|"
    r"tasks? [\d,-]+: Out Of Memory)"
)
# srun and Slurm's step daemon; mpirun says it of its daemon on the other node.
_NODE = re.compile(r"(?i)\bnode failure\b|\bNODE_FAIL\b|lost communication with a remote daemon")
_TELLING = re.compile(r"(srun: )?error: |[\w.]*(Error|Exception)\b")
_KILL = re.compile(r"\bsignal 9\b|tasks? [\d,-]+: Killed")
_BROKEN = "TurnsBroken"  # of a rank that another one woke to end
_KILLED = 137  # the shell's code for it
_MOST_WORDS = 8

# what an `end` must have found true: of training, and of compute that slept, which has no loss
CHECKS: tuple[str, ...] = ("samples_per_step", "torch_settings_kept", "loss_finite")
CHECKS += ("parameters_equal", "loss_bounded", "parity")
EMULATED = ("samples_per_step", "torch_settings_kept", "parameters_equal", "gradients_averaged")
_FIRST_SCHEMA = {"torch_settings_kept": 9}  # that demands the check; others, every one does
# Share and seconds of a window that may lie outside the steps of its slowest rank. Between them are
# readings of a clock, on a GPU two clocks; a rank that loses its core at an edge is away for long.
_EDGES, _EDGES_S = 0.01, 0.05
# Share of a node's processor time from a run's start to its end. Where ranks leave no core idle,
# the steps lack what others take, and more than a study's usual margin may decide a comparison.
NOISY = 0.02


@dataclass(frozen=True)
class RunOutcome:
    """A run's state, its reason ('' only if the run is ok) and its ranks' last messages."""

    state: str
    reason: str = ""
    words: tuple[str, ...] = ()


OK = RunOutcome("ok")


def judge(events: Sequence[Event]) -> RunOutcome | None:
    """Return what the events say against a run; None if `end` says ok and no event is an error.

    A known root cause outranks the way in which the run ended. Ranks that survive a lost rank are
    killed or time out later, which would hide the cause.
    """
    errors = [event for event in events if event["event"] == "error"]
    end, launcher = last(events, "end"), last(events, "exit")
    status = end.get("status", "")
    if status == "ok" and not errors:
        return None
    launcher_lines = list(launcher.get("said", ()))
    words = _words(errors, launcher_lines)
    code = f"exit code {launcher['code']}: " if "code" in launcher else ""
    by = f" by {end['signal']}" if end.get("signal") else ""
    stopped = f"stopped: {end['reason']}" if end.get("reason") else f"stopped{by}"
    ended = launcher.get("timed_out") or launcher.get("interrupted")
    if (cause := next(_causes(errors, launcher_lines), None)) is not None:
        return RunOutcome(*cause, words)
    if (partner := launcher.get("partner")) and status != "ok":
        return RunOutcome("failed", f"ended with {partner}, the run that it took turns with")
    killed = launcher.get("code") == _KILLED or any(_KILL.search(line) for line in launcher_lines)
    if (kills := launcher.get("oom_kills")) and killed and not ended:
        memory = f"killed, and the kernel killed {kills} process(es) for lack of memory"
        return RunOutcome("out of memory", code + memory, words)
    if launcher.get("timed_out") and status != "ok":
        return RunOutcome("timed out", f"timed out after {launcher.get('limit_s')} s", words)
    if launcher.get("interrupted") and status != "ok":
        return RunOutcome("interrupted", stopped)  # whatever ranks say while they are ended
    if errors:
        # the first is the cause, as ranks that lose a peer complain after it
        root = next((error for error in errors if error.get("type") != _BROKEN), errors[0])
        return RunOutcome("failed", code + _error(root), words)
    if status == "interrupted" and launcher.get("code") and "interrupted" in launcher:
        # the job was not stopped: when a rank dies, its launcher ends the others
        died = words[0] if words else f"{stopped} because another rank died"
        return RunOutcome("failed", code + died, words)
    if status == "interrupted":
        return RunOutcome("interrupted", stopped)
    if end:
        return RunOutcome("failed", code + status.removeprefix("failed: "), words)
    if launcher:
        return RunOutcome("failed", code + (words[0] if words else "no end event"), words)
    return RunOutcome("running", "no end event: killed or still running")


def last(events: Sequence[Event], name: str) -> Event:
    """Return the last event of a name, or {} if there is none."""
    return next((event for event in reversed(events) if event["event"] == name), {})


def _causes(errors: Sequence[Event], launcher_lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (state, line that proves it): node lost, then out of memory, then wrong world."""
    memory = "out of memory"
    yield from (("node lost", line) for line in launcher_lines if _NODE.search(line))
    yield from ((memory, _error(e)) for e in errors if _RANK_MEMORY.search(e["message"]))
    for line in launcher_lines:
        if _LAUNCHER_MEMORY.search(line) or _RANK_MEMORY.search(line):
            yield memory, line
    # later ones may only miss a rank that has failed
    if errors and errors[0].get("type") == WrongWorld.__name__:
        yield "wrong world", _error(errors[0])


def _error(error: Event) -> str:
    return f"rank {error['rank']}: {error['message']}"


def _words(errors: Sequence[Event], launcher_lines: Sequence[str]) -> tuple[str, ...]:
    """Return at most _MOST_WORDS distinct messages of ranks, or a launcher's line if none came."""
    if not errors:
        telling = [line for line in launcher_lines if _TELLING.match(line)]
        return tuple((telling or list(filter(None, [" ".join(launcher_lines)])))[-1:])
    first: dict[str, Event] = {}
    for error in errors:
        first.setdefault(error["message"], error)
    return tuple(map(_error, first.values()))[:_MOST_WORDS]


def wrong_world(config: RunConfig, host: Mapping[str, Any]) -> str | None:
    """Return how the recorded ranks differ from the world asked for; None if they do not."""
    ranks = [rank["rank"] for rank in host.get("ranks", ())]
    if ranks == list(range(config.world_size)):
        return None
    numbers = ", ".join(map(str, ranks[:8])) or "none"
    return f"provenance of ranks {numbers}, asked for 0 to {config.world_size - 1}"


def missing(config: RunConfig, schema: int, events: Sequence[Event]) -> Iterator[str]:
    """Yield in words what is missing or wrong in a log whose `end` says ok; use only the first."""
    of: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        of[event["event"]].append(event)
    windows, end, workload = of["window"], of["end"][-1], of["start"][0]["workload"]
    indices = list(range(config.windows))
    if [window["index"] for window in windows] != indices:
        yield f"{len(windows)} windows of {config.windows}"
    if any(window["steps"] != config.steps_per_window for window in windows):
        yield f"a window has not {config.steps_per_window} steps"
    if any(len(window["input_seconds"]) != config.world_size for window in windows):
        yield "the input_seconds of some rank are missing"
    observed = 0 if config.observe == "nothing" else config.steps_per_window
    for name, phase, steps, keys in (
        ("steps", "lead_in", config.lead_in_steps, ("seconds",)),
        ("steps", "window", config.steps_per_window, ("seconds",)),
        ("breakdown", "window", observed, PARTS),
    ):
        timed = [event for event in of[name] if event["phase"] == phase]
        if [event["index"] for event in timed] != (indices if steps else []):
            yield f"the {name} of some {phase} are missing, or there twice"
        shape = [steps] * config.world_size
        if any([*map(len, event[key])] != shape for event in timed for key in keys):
            yield f"the {name} of some rank are missing"
    timed = [event for event in of["steps"] if event["phase"] == "window"]
    for window, event in zip(windows, timed, strict=True):
        seconds, slowest = window["seconds"], max(map(sum, event["seconds"]))
        if abs(seconds - slowest) > max(_EDGES * seconds, _EDGES_S):
            lasted = f"window {window['index']} lasted {seconds} s"
            yield f"{lasted}, and the steps of its slowest rank {slowest} s"
    yield from _trainings(config, of["epoch"])
    if config.emulate is not None and not workload.get("timeline_sha256"):
        yield "the digest of the timeline that was followed is missing"
    checks = dict.fromkeys(_demanded(config, schema), False) | end.get("checks", {})
    if "parity" in checks and checks["parity"] is None and unproven(end):
        del checks["parity"]  # a report says so
    if failed := [name for name, passed in checks.items() if passed is not True]:
        yield f"failed checks: {', '.join(failed)}"
    samples = config.steps * config.samples_per_step
    if (counted := end.get("samples")) != samples:
        steps_of = f"{config.steps} steps of {config.samples_per_step}"
        yield f"{counted} samples, where {steps_of} are {samples}"


def unproven(end: Event) -> list[str]:
    """List, sorted, the tensors that the parity check could neither confirm nor refute."""
    return sorted({name for step in end.get("parity", ()) for name in step.get("not_proven", ())})


def _demanded(config: RunConfig, schema: int) -> Iterator[str]:
    """Yield the checks that an `end` must have passed, by configuration and log schema."""
    for check in CHECKS if config.emulate is None else EMULATED:
        if schema < _FIRST_SCHEMA.get(check, 0):
            continue
        if check == "parameters_equal" and config.ranks_part:
            yield "parameters_differ"
        elif config.averages or check not in ("parity", "parameters_equal"):
            yield check
    if config.epochs is not None:
        yield "trainings_equal"


def _trainings(config: RunConfig, epochs: Sequence[Event]) -> Iterator[str]:
    """Yield faults of a run's trainings: a wrong number of trainings, missing or wrong epochs.

    A training's last epoch must be the first that reaches the target, or the last that is allowed.
    """
    trainings = [list(group) for _, group in groupby(epochs, key=lambda event: event["training"])]
    if len(trainings) != (0 if config.epochs is None else config.trainings):
        yield f"{len(trainings)} trainings of {config.trainings}"
    for training in trainings:
        name = f"training {training[0]['training']}"
        if [event["index"] for event in training] != list(range(len(training))):
            yield f"an epoch of {name} is missing, or there twice"
        reached = [config.reaches(event["correct"], event["held_out"]) for event in training]
        if any(reached[:-1]) or not (reached[-1] or len(reached) == config.epochs):
            yield f"{name} did not end where it should"
        ranks = 0 if config.averages else config.world_size
        if any(len(event.get("own_correct", [])) != ranks for event in training):
            yield f"an epoch of {name} lacks what each rank has right by itself"
        if not all(event["parameters_equal"] for event in training):
            yield f"after an epoch of {name} ranks had other parameters"
