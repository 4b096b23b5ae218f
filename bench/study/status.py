"""The state of every planned run, and an estimate of the time that is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.config import Role, RunConfig, UsageError, fields_with
from bench.record import STATES, read_run
from bench.record.archive import holds
from bench.study.definition import Point
from bench.study.plan import Pairs, PlannedRun, turn_groups

# What Slurm's accounts say of a job, where that tells what became of the run that died with it
_WITH_ITS_JOB = {"NODE_FAIL": "node lost", "OUT_OF_MEMORY": "out of memory"}


@dataclass(frozen=True)
class RunStatus:
    """A planned run and its state by its log; `words` are errors of its ranks or its launcher."""

    run: PlannedRun
    state: str
    reason: str = ""
    wall_s: int | None = None
    hosts: tuple[str, ...] = ()
    allocation: str = ""
    words: tuple[str, ...] = ()


def look(run: PlannedRun, job_is_running: bool, job: str = "") -> RunStatus:
    """Return a run's status by its log; `job` says how an unfinished run's job ended, if known."""
    unfinished = ("running", "")
    if not job_is_running:
        state = next((state for word, state in _WITH_ITS_JOB.items() if word in job), "interrupted")
        unfinished = state, "killed together with its job" + (f", which {job}" if job else "")
    if not holds(run.log):
        if not holds(run.log.with_suffix(".out")):
            return RunStatus(run, "planned")
        state, reason = unfinished
        return RunStatus(run, state, reason and f"there is no log: deleted, or {reason}")
    try:
        log = read_run(run.log)
    except UsageError as error:  # a folder of that name, or a file of somebody else
        return RunStatus(run, "failed", str(error))
    outcome = log.outcome
    wall_s = log.exit.get("wall_s")
    if wall_s is not None and (turns := log.host.get("turns")):
        wall_s = round(wall_s / turns["worlds"])  # its share of the launch
    if log.config is not None and (other := difference(run.config, log.config)):
        return RunStatus(run, "failed", f"the log is of another run: {other}", wall_s)
    if outcome.state == "running":
        return RunStatus(run, *unfinished)
    place = (log.hosts, log.allocation) if outcome.state == "ok" else ((), "")
    return RunStatus(run, outcome.state, outcome.reason, wall_s, *place, outcome.words)


def difference(planned: RunConfig, logged: RunConfig) -> str:
    """Describe the first field not as planned, log_path and the like aside; '' if there is none."""
    # a study that was changed afterwards is the report's to tell: the run is what it was
    ignored = (*fields_with(Role.BOOKKEEPING | Role.FOLDER), "study_sha256")
    if logged.arm is None:  # so did logs before schema 9; the fields of the arm tell
        ignored += ("arm",)
    for name in RunConfig.model_fields:
        if name not in ignored and getattr(planned, name) != getattr(logged, name):
            return f"{name}={getattr(logged, name)!r}, planned {getattr(planned, name)!r}"
    return ""


def not_comparable(statuses: Sequence[RunStatus], pairs: Pairs) -> list[PlannedRun]:
    """Return the runs to do: all runs of each group that is not complete in one place.

    A group has the runs of one launch that are compared. It is complete if every run is ok, and all
    but `single` ran on the same hosts in the same job or, with no scheduler, in the same session.
    """
    turn_group = turn_groups({s.run.point: s.run.config.curves for s in statuses}, pairs)
    groups: dict[object, list[RunStatus]] = {}
    for status in statuses:
        together = turn_group[status.run.point]
        groups.setdefault((status.run.config.launch, together), []).append(status)
    again = {status.run.id for group in groups.values() if _is_parted(group) for status in group}
    return [status.run for status in statuses if status.run.id in again]


def _is_parted(group: Sequence[RunStatus]) -> bool:
    """Check if a run is not ok, or runs (those of `single` aside) differ in hosts or allocation."""
    places = {(s.hosts, s.allocation) for s in group if s.run.point.cell != "single"}
    return len(places) > 1 or any(status.state != "ok" for status in group)


def count(statuses: Iterable[RunStatus]) -> str:
    """Count the runs by state: '42 runs: 40 ok, 1 failed, 1 planned'."""
    counts = Counter(status.state for status in statuses)
    counted = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return f"{counts.total()} runs: {counted}"


def table(statuses: Sequence[RunStatus]) -> Iterable[tuple[str, str, str, list[str]]]:
    """Yield for each run: padded id, state, '12 s  REASON' as far as known, and its messages."""
    width = max(len(status.run.id) for status in statuses)
    for status in statuses:
        seconds = "" if status.wall_s is None else f"{status.wall_s} s"
        known = "  ".join(filter(None, (seconds, status.reason)))
        more = [words for words in status.words if words not in status.reason]
        yield status.run.id.ljust(width), status.state, known, more


def seconds_left(
    pending: Sequence[PlannedRun], statuses: Iterable[RunStatus], expected_run_s: int | None = None
) -> float | None:
    """Estimate the seconds of `pending` from ok runs of the same point, else from all ok runs.

    Without an ok run, take `expected_run_s` for each; return None if `expected_run_s` is None.
    """
    known: dict[Point, list[int]] = {}
    for status in statuses:
        if status.state == "ok" and status.wall_s is not None:
            known.setdefault(status.run.point, []).append(status.wall_s)
    every = [wall_s for walls in known.values() for wall_s in walls]
    if not every:
        return None if expected_run_s is None else float(expected_run_s * len(pending))
    return sum(fmean(known.get(run.point, every)) for run in pending)


def duration(seconds: float | None) -> str:
    """Describe a duration, as 'about 7 min'; for None, say that there is no estimate yet."""
    if seconds is None:
        return "no estimate before a run has ended"
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"
