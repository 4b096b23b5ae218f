"""The run log: JSON lines that are written during the run, and the reader that checks them.

The events are, in order, start, steps, breakdown, window, epoch, error, end and exit. They hold
numbers as measured; events.py lists their fields. The log of a killed run has no `end`. The last
field of `end` and `exit` is `sha256`, a digest of the whole file up to the comma before that field.
No event tells what became of a run: bench/record/outcome.py judges it from the events.

Schema history (any change raises SCHEMA except a new field of config; keep old logs in fixtures):
  6  the oldest that is read. With observe=framework there are events named exchanges
  7  events epoch, held_out of workload and the check trainings_equal, with epochs
  8  until version 1.0 host has servers (of a parameter server). With mode=async there is no parity,
     and own_correct of an epoch counts, by rank, what the rank's own parameters classify right
  9  config has variant; end has tcp_bytes (by rank and interface), threads of each rank and the
     check torch_settings_kept; user_code is the SHA-256 of a user's own files
 10  host.turns: launch, turn and worlds. Clock ticks leave out other worlds' turns. exit has
     partner (the run whose failure ended this run) and apart (why this run took no turns)
 11  steps may have the phase lead_in: steps before a window, not part of its time
 12  end has flops_per_image
 14  end has strided_gradients, until version 2.0
 15  each rank has its kernel's boot_id: nodes with equal boot_id share a machine's cores
 16  parity has not_proven: tensors that could not be compared; their check is null, not true
 17  config has no variant: arm also names a condition of measurement that all cells share
 18  config has launch in place of block
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from bench.config import RunConfig, UsageError, make_config, strictly
from bench.record import outcome
from bench.record.events import Damaged, parse
from bench.record.outcome import CHECKS, OK, STATES, RunOutcome
from bench.record.writer import SEALED, RunLog, append_event, hold, is_sealed

__all__ = ["CHECKS", "SCHEMA", "STATES", "USER_CODE", "Run", "RunLog", "allocation"]
__all__ += ["append_event", "parse_run", "read_run", "set_aside"]

SCHEMA = 18
USER_CODE = "user_code"  # folder beside the logs: files of a user's own model and data set
READABLE = tuple(range(6, SCHEMA + 1))
_MOST_REASON = 1000  # characters
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# fields of a run that left -> the value that changed nothing
RETIRED: Mapping[str, Any] = {
    **dict.fromkeys(("alone", "checkpoint", "compile", "loader_only", "sync_batchnorm"), False),
    **dict.fromkeys(("cycle_ms", "fusion_mib", "servers", "trace")),
    "augment": True,
    "compression": "none",
    "momentum": 0.9,
    "sysfs": "/sys",
}
_OF_NO_MEASUREMENT = ("download", "rendezvous_dir", "rendezvous_timeout_s")  # at any value
_NAMES_VARIANTS, _NAMES_LAUNCHES = 9, 18  # the first schemas that do


def allocation(job: object, restart: object) -> str:
    """Name a job's allocation: 'job 77', or 'job 77, restart 1' if Slurm has requeued the job."""
    return f"job {job}" if str(restart) == "0" else f"job {job}, restart {restart}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run log as read. `config` is None if unreadable; `damage` is None without a fault."""

    path: Path
    config: RunConfig | None
    host: Mapping[str, Any]
    workload: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    schema: int = SCHEMA
    damage: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts that held a rank, each once, sorted."""
        return tuple(sorted({rank["hostname"] for rank in self.host.get("ranks", ())}))

    @property
    def allocation(self) -> str:
        """The run's Slurm job and restart, or its driver's session outside Slurm; '' if unknown."""
        job = self.host.get("job", {})
        number, restart = job.get("SLURM_JOB_ID"), job.get("SLURM_RESTART_COUNT", 0)
        if number is not None:
            return allocation(number, restart)
        return f"session {session}" if (session := self.exit.get("session")) else ""

    @property
    def windows(self) -> list[Mapping[str, Any]]:
        """The `window` events, in order."""
        return [e for e in self.events if e["event"] == "window"]

    @property
    def window_seconds(self) -> list[float]:
        """Seconds of each window on its slowest rank."""
        return [w["seconds"] for w in self.windows]

    def steps(self, phase: str) -> list[list[list[float]]]:
        """List seconds of steps by [window][rank][step]; phase `warmup` counts as one window."""
        return [e["seconds"] for e in self.events if e["event"] == "steps" and e["phase"] == phase]

    def step_seconds(self, phase: str = "window") -> list[list[float]]:
        """List the seconds of every step of a phase, shape [rank][step], windows joined."""
        return [list(chain.from_iterable(rank)) for rank in zip(*self.steps(phase), strict=False)]

    @property
    def step_seconds_mean(self) -> float:
        """Mean seconds per timed step: all windows' seconds over the number of their steps."""
        return sum(self.window_seconds) / float(sum(w["steps"] for w in self.windows))

    @property
    def images_per_s(self) -> float:
        """Images per second of all ranks over all windows (Hoefler & Belli 2015, rule 3)."""
        assert self.config is not None
        return self.config.samples_per_step / self.step_seconds_mean

    @property
    def end(self) -> Mapping[str, Any]:
        """The `end` event, empty if the run never wrote it."""
        return outcome.last(self.events, "end")

    @property
    def exit(self) -> Mapping[str, Any]:
        """The driver's `exit` event, empty if the driver has not appended it."""
        return outcome.last(self.events, "exit")

    @property
    def parity_not_proven(self) -> list[str]:
        """Sorted names of tensors that the parity check could neither confirm nor refute."""
        return outcome.unproven(self.end)

    @cached_property
    def broken(self) -> str | None:
        """The log's damage, unless the events already say why the run is not ok; else None."""
        ended = self.end or self.exit.get("code") or outcome.last(self.events, "error")
        return None if ended and outcome.judge(self.events) is not None else self.damage

    @cached_property
    def outcome(self) -> RunOutcome:
        """What became of the run. Its events decide, else damage, else what the log lacks."""
        result = outcome.judge(self.events)
        if self.broken is not None:
            result = RunOutcome("failed", self.broken)
        elif result is None and self.config is None:
            result = RunOutcome("failed", "no usable start event")
        elif result is None and self.config is not None:
            mismatch = outcome.wrong_world(self.config, self.host)
            lacks = outcome.missing(self.config, self.schema, self.events)
            if lack := mismatch or next(lacks, None):
                result = RunOutcome("wrong world" if mismatch else "failed", lack)
        if result is None:
            return OK
        lines = (result.reason, *result.words)
        reason, *words = (_CONTROL.sub(" ", line)[:_MOST_REASON] for line in lines)
        return RunOutcome(result.state, reason or "no reason given", tuple(words))

    @property
    def problem(self) -> str | None:
        """Why this log must not be used; None if it may be used."""
        return self.outcome.reason or None

    @property
    def state(self) -> str:
        """One of STATES, never 'planned'; 'running' if there is no end, exit, error or damage."""
        return self.outcome.state


def read_run(path: Path) -> Run:
    """Read a log in any state, also from its study's archive. Raises UsageError if unreadable."""
    from bench.record.archive import read_file  # here: a run reads none

    try:
        return parse_run(path, read_file(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def parse_run(path: Path, data: bytes) -> Run:
    """Parse `data` as the log at `path`; raise no error, whatever the bytes are.

    Torn lines are skipped; they are damage if the log has an `end`. An unknown schema is damage.
    """
    events, damaged, changed, torn = [], [], [], []
    before = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            event = parse(line) if line.strip() else {}  # one may be empty, after a torn one
            events += [event] if event else []
            if event.get("event") in SEALED and not is_sealed(data[:before], line):
                fault = f"the digest in its {event['event']} does not fit"
                changed.append(f"the log was changed after it was written: {fault}")
        except JSONDecodeError as error:
            torn.append(f"line {number} is no event: {error.msg}")
        except Damaged as error:
            damaged.append(f"damaged log: line {number}: {error}")
        before += len(line) + 1
    start = next((event for event in events if event["event"] == "start"), {})
    config = None
    try:
        config = _config(start) if start else None
    except ValueError as error:
        damaged = [f"no usable start event: {error}"]
    repeated = (
        f"damaged log: {n} {name} events"  # from another run: a run has one of each
        for name in ("start", "end")
        if (n := sum(event["event"] == name for event in events)) > 1
    )
    lost = torn if outcome.last(events, "end") else ()  # else it was killed while it wrote
    problems = chain(damaged, repeated, changed, lost)
    return Run(
        path=path,
        config=config,
        host=start.get("host", {}),
        workload=start.get("workload", {}),
        events=tuple(events),
        schema=start.get("schema", SCHEMA),
        damage=next(problems, None),
    )


def _config(start: Mapping[str, Any]) -> RunConfig:
    """Read a run's config from its start event. Raises ValueError if it cannot be read."""
    schema, values = start["schema"], dict(start["config"])
    if schema not in READABLE:
        raise ValueError(f"schema {schema}, and this version reads {READABLE[0]} to {SCHEMA}")
    for name, usual in RETIRED.items():
        if (value := values.pop(name, usual)) != usual:
            raise ValueError(f"config.{name}={value!r} is of version 1.0.0, which reads this log")
    for name in _OF_NO_MEASUREMENT:
        values.pop(name, None)
    if variant := values.pop("variant", None):  # which all cells had, and an arm one of them
        values["arm"] = "-".join(filter(None, (values.get("arm"), str(variant))))
    if schema < _NAMES_LAUNCHES:
        values["launch"] = values.pop("block", None)
    if schema < _NAMES_VARIANTS:  # the study tells the arm by its fields
        values["arm"] = None
    try:
        return make_config(strictly(values))
    except UsageError as error:
        raise ValueError(f"config.{error}") from None


def set_aside(path: Path) -> str | None:
    """Rename the log of a run that ended without a result; return in words what was done.

    Rename nothing and return None if `path` is no log that can be opened, or if it is damaged,
    belongs to a study or has a result. Raises UsageError if the run may still be writing it.
    """
    if not path.is_file():  # a pipe would be waited for
        return None
    try:
        with path.open("r+b") as file:  # NFS locks no file that is only read
            ended, run = hold(file.fileno()), read_run(path)
    except OSError:
        return None
    planned = run.config is not None and run.config.study is not None  # its driver does this
    has_result = run.end and (run.end["status"] == "ok" or run.windows)
    if run.damage or planned or has_result or (not run.events and path.stat().st_size):
        return None
    if not ended:
        still = "has no result yet, and its run may still be at work"
        raise UsageError(f"log_path={str(path)!r} {still}; choose another name")
    names = (path.with_stem(f"{path.stem}.attempt-{n}") for n in itertools.count(1))
    free = next(name for name in names if not name.exists())
    path.rename(free)
    reason = f"measured nothing ({run.problem})" if run.end else "was ended before its end"
    return f"{path} is of a run that {reason}; it is now {free}"
