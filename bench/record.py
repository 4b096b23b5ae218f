"""The run log: JSON lines written as the run goes, and the reader that says whether a log proves a complete run.

Schema history (raise SCHEMA on any change, keep an old file under tests/fixtures):
  1  start, steps, window, error, end (written by the run) and exit (appended by whoever launched it)
  2  window has input_seconds, end has peak_device_memory_bytes; a run with loader_only has fewer checks
  3  error has type, exit has said and oom_kills; a study's run that was refused for its world has a log: start (its host is the
     launch alone), error, end

Events in order; every number as measured, seconds unrounded:
  start   schema, config (every RunConfig field), host (provenance, one entry per rank), workload (derived facts)
  steps   phase "warmup" or "window", index, seconds: one list per rank, one number per step
  window  index, steps, seconds: the slowest rank's, device synced at both edges; input_seconds: what each rank waited for data
  error   rank, type (of the exception), message: appended by the rank that failed
  end     status "ok" | "failed: ..." | "interrupted", checks; absent if the process was killed
  exit    code, timed_out, interrupted, limit_s, wall_s, said (lines of what the run and its launcher printed, none if all went
          well), oom_kills (processes that the launching machine's kernel killed for memory meanwhile): the launcher's view, kept
          apart because a run may crash after complete data, and may be stopped before it has written anything

What became of a run is no event: `bench/verdict.py` judges it from these.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench.config import RunConfig, UsageError
from bench.verdict import OK, STATES, Verdict, judge

__all__ = ["CHECKS", "READABLE", "SCHEMA", "STATES", "Run", "RunLog", "Verdict", "append_event", "read_run"]

SCHEMA = 3
READABLE = (1, 2, 3)  # what 2 and 3 added is optional to a reader, so all are read alike
CHECKS = ("samples_per_step", "loss_finite", "parameters_equal")  # what an `end` must have found true
LOADER_CHECKS = CHECKS[:1]  # where nothing was trained


class RunLog:
    """Writer of one run log; thread-safe, and silent after `end`, so that a late signal cannot spoil a finished log."""

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.RLock()
        self._ended = False
        self._fd = None if path is None else _create(path)

    def write(self, event: str, **fields: Any) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = event == "end"
            if self._fd is not None:
                os.write(self._fd, _line(event, fields))
                if self._ended:
                    os.fsync(self._fd)


def append_event(path: Path, event: str, **fields: Any) -> None:
    """Add one event to an existing log: for a failing rank other than 0, and for the launcher."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, b"\n" + _line(event, fields))  # the newline closes a line torn by a kill
    finally:
        os.close(fd)


def _create(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise UsageError(f"log_path={str(path)!r} {_in_the_way(path)}; choose another name") from None
    except OSError as error:
        raise UsageError(f"log_path={str(path)!r} cannot be written: {error.strerror}; choose another folder") from None


def _in_the_way(path: Path) -> str:
    """What stands where a log was to be created."""
    if path.is_dir():
        return "is a folder, not the name of a file"
    if path.is_file():
        return "exists and is never overwritten"
    if path.exists():
        return "is a device or a pipe, and a log is read back"
    if path.is_symlink():
        return f"is a link to {str(path.readlink())!r}, which is not there"
    return "cannot be written: a file is where its folder should be"


def _line(event: str, fields: Mapping[str, Any]) -> bytes:
    return (json.dumps({"event": event, **fields}, allow_nan=True) + "\n").encode()


def allocation(job: object, restart: object) -> str:
    """Name of an allocation, as in 'job 77, restart 1': a requeued job keeps its id, and may get other nodes."""
    return f"job {job}" if str(restart) == "0" else f"job {job}, restart {restart}"


@dataclass(frozen=True)
class Run:
    """One log as read. `problem` is None exactly if the log proves that the run did all it was asked to do."""

    path: Path
    config: RunConfig | None
    host: Mapping[str, Any]
    workload: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]

    def _last(self, event: str) -> Mapping[str, Any] | None:
        return next((e for e in reversed(self.events) if e["event"] == event), None)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts that held a rank, each once, sorted."""
        return tuple(sorted({rank["hostname"] for rank in self.host.get("ranks", ()) if "hostname" in rank}))

    @property
    def allocation(self) -> str:
        """The scheduler's allocation it ran in; '' where there was none."""
        job = self.host.get("job") or {}
        return allocation(job["SLURM_JOB_ID"], job.get("SLURM_RESTART_COUNT", 0)) if "SLURM_JOB_ID" in job else ""

    @property
    def windows(self) -> list[Mapping[str, Any]]:
        """The `window` events, in order."""
        return [e for e in self.events if e["event"] == "window"]

    @property
    def window_seconds(self) -> list[float]:
        """Seconds of each window on its slowest rank."""
        return [w["seconds"] for w in self.windows]

    def step_seconds(self, phase: str = "window") -> list[list[float]]:
        """Seconds of every step on every rank, shape [rank][step], windows joined; phase 'warmup' for the cut steps."""
        parts = [e["seconds"] for e in self.events if e["event"] == "steps" and e["phase"] == phase]
        ranks = min((len(part) for part in parts), default=0)
        return [[s for part in parts for s in part[rank]] for rank in range(ranks)]

    @property
    def images_per_s(self) -> float:
        """Throughput of the whole run: all images of all windows over the sum of their seconds (Hoefler & Belli 2015, rule 3)."""
        assert self.config is not None
        steps: int = sum(w["steps"] for w in self.windows)
        return self.config.samples_per_step * steps / sum(self.window_seconds)

    @property
    def end(self) -> Mapping[str, Any]:
        """The `end` event, empty if the process never wrote one."""
        return self._last("end") or {}

    @property
    def exit(self) -> Mapping[str, Any]:
        """The launcher's `exit` event, empty where none was appended."""
        return self._last("exit") or {}

    @cached_property
    def verdict(self) -> Verdict:
        """What became of the run; it is ok only if the log proves that it did all it was asked to do."""
        return judge(self.events) or _incomplete(self) or OK

    @property
    def problem(self) -> str | None:
        """Why this log must not be used, or None."""
        return self.verdict.reason or None

    @property
    def state(self) -> str:
        """One of STATES, but never 'planned'; 'running' where there is no end and no exit yet."""
        return self.verdict.state


def _incomplete(run: Run) -> Verdict | None:
    """What a log that ends well does not prove."""
    ranks = len(run.host.get("ranks", ()))
    if run.config is not None and ranks != run.config.world_size:
        return Verdict("wrong world", f"provenance of {ranks} ranks, asked for {run.config.world_size}")
    missing = _missing(run)
    return None if missing is None else Verdict("failed", missing)


def _missing(run: Run) -> str | None:
    config = run.config
    if config is None:
        return "no usable start event"
    windows = run.windows
    if [w["index"] for w in windows] != list(range(config.windows)):
        return f"{len(windows)} windows of {config.windows}"
    if any(w["steps"] != config.steps_per_window or not w["seconds"] > 0 for w in windows):
        return f"a window has not {config.steps_per_window} steps, or no duration"
    steps = run.step_seconds()
    if len(steps) != config.world_size or any(len(s) != config.windows * config.steps_per_window for s in steps):
        return "the steps of some rank are missing"
    needed = LOADER_CHECKS if config.loader_only else CHECKS
    checks = {**dict.fromkeys(needed, False), **run.end.get("checks", {})}
    failed = [name for name, passed in checks.items() if passed is not True]
    return f"failed checks: {', '.join(failed)}" if failed else None


def read_run(path: Path) -> Run:
    """Read one log, whatever its state; raises UsageError only if the file cannot be read at all.

    A torn last line (killed while writing) ends the log. A log of another schema has a problem, never a guess.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    events = _events(text.splitlines())
    start: Mapping[str, Any] = next((e for e in events if e["event"] == "start"), {})
    config = _config(start)
    return Run(path, config, start.get("host", {}), start.get("workload", {}), tuple(events))


def _events(lines: Sequence[str]) -> list[Mapping[str, Any]]:
    """The lines that are events. A torn line is left out: whatever it held is then missing, which `problem` notices."""
    events: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def _config(start: Mapping[str, Any]) -> RunConfig | None:
    if start.get("schema") not in READABLE:
        return None
    try:
        return RunConfig(**start["config"])
    except (ValidationError, KeyError, TypeError):
        return None
