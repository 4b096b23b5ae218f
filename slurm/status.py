"""What has become of every planned run, and how long the rest will take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.config import RunConfig
from bench.record import Run as Log
from bench.record import read_run
from slurm.plan import Point, Run

STATES = ("ok", "running", "planned", "failed", "timed out", "interrupted")


@dataclass(frozen=True)
class RunStatus:
    """One planned run as its log tells it."""

    run: Run
    state: str
    reason: str = ""
    wall_s: int | None = None
    hosts: tuple[str, ...] = ()
    allocation: str = ""

    @property
    def place(self) -> object:
        """What two runs must share to be compared."""
        return self.hosts, self.allocation


def look(run: Run, job_is_running: bool) -> RunStatus:
    """State of one run. A run without an end is `running` only while a job holds the study's lock."""
    out = run.log.with_suffix(".out")
    unfinished = ("running", "") if job_is_running else ("interrupted", "killed together with its job")
    if not run.log.exists():
        return RunStatus(run, *(unfinished if out.exists() else ("planned", "")))
    try:
        log = read_run(run.log)
        _ = log.state
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # an event lacks what the schema promises
        return RunStatus(run, "failed", f"damaged log: {type(error).__name__}: {error}")
    wall_s = log.exit.get("wall_s")
    if log.config is not None and (difference := _difference(run.config, log.config)):
        return RunStatus(run, "failed", f"the log is of another run: {difference}", wall_s)
    if log.problem is None:
        return RunStatus(run, "ok", "", wall_s, log.hosts, log.allocation)
    # A launcher leaves its ranks little time to say that they were stopped, so the job says it too.
    if log.exit.get("interrupted"):
        return RunStatus(run, "interrupted", "", wall_s)
    if not log.exit and not log.end and not _errors(log):
        return RunStatus(run, *unfinished)
    return RunStatus(run, log.state, _reason(log, out), wall_s)


def _difference(planned: RunConfig, found: RunConfig) -> str:
    """First field in which a log's run is not the planned one; where it looked for its peers does not matter."""
    for name in RunConfig.model_fields.keys() - {"log_path", "rendezvous_dir"}:
        if getattr(planned, name) != getattr(found, name):
            return f"{name}={getattr(found, name)!r}, planned {getattr(planned, name)!r}"
    return ""


def _errors(log: Log) -> bool:
    return any(event["event"] == "error" for event in log.events)


def _reason(log: Log, out: Path) -> str:
    """The log's own reason; where a run died without giving one, the line of its output that looks like one."""
    assert log.problem is not None
    if log.end or _errors(log) or log.exit.get("timed_out"):
        return log.problem.removeprefix("failed: ")
    said = _last_words(out)
    return f"exit code {log.exit.get('code')}" + (f": {said}" if said else "")


def _last_words(out: Path) -> str:
    try:
        lines = [line.strip() for line in out.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    telling = [line for line in lines if re.match(r"error: |[\w.]*(Error|Exception)\b", line)]
    return (telling or lines or [""])[-1][:200]


def count(statuses: Iterable[RunStatus]) -> str:
    """'42 runs: 40 ok, 1 failed, 1 planned'."""
    counts = Counter(status.state for status in statuses)
    return f"{counts.total()} runs: " + ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])


def table(statuses: Sequence[RunStatus]) -> Iterable[tuple[str, str, str]]:
    """Per run: id, padded to a column, state, and what else is known."""
    width = max(len(status.run.id) for status in statuses)
    for status in statuses:
        seconds = "" if status.wall_s is None else f"{status.wall_s} s"
        yield status.run.id.ljust(width), status.state, "  ".join(filter(None, (seconds, status.reason)))


def seconds_left(pending: Sequence[Run], statuses: Iterable[RunStatus], expected_run_s: int | None = None) -> float | None:
    """Estimate for the pending runs from runs that ended ok: of the same point if there are any, else of all.

    Before any has ended, from `expected_run_s`; None without that.
    """
    known: dict[Point, list[int]] = {}
    for status in statuses:
        if status.state == "ok" and status.wall_s is not None:
            known.setdefault(status.run.point, []).append(status.wall_s)
    every = [wall_s for walls in known.values() for wall_s in walls]
    if not every:
        return None if expected_run_s is None else float(expected_run_s * len(pending))
    return sum(_mean(known.get(run.point, every)) for run in pending)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def duration(seconds: float | None) -> str:
    """'about 7 min', for people."""
    if seconds is None:
        return "no estimate before a run has ended"
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"
