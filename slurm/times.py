"""How long a run takes at a site: the median of runs that ended there, nearest first, else what the
study assumes.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.config import RunConfig, UsageError
from bench.record import read_run
from bench.study.definition import Study
from bench.study.jobs import read_records
from bench.study.status import RunStatus
from slurm.fit import assumed_s

_MOST_LOGS = 200  # of another study: enough for a median, and read in a second
_WORK = ("model", "dataset", "image_size", "device", "precision", "compile")
_STEPS = ("warmup_steps", "windows", "steps_per_window")


@dataclass(frozen=True)
class Timed:
    """A run that ended ok, and the seconds from its launcher's start to its end."""

    config: RunConfig
    wall_s: float


@dataclass(frozen=True)
class Times:
    """Seconds that a run may well take, and a phrase that says where they are from."""

    known: list[Timed]
    assumed_s: float
    source: str

    def seconds(self, config: RunConfig) -> float:
        """Median of the same point, else of as many ranks, else of all; the study's assumption
        where none has ended.
        """
        same = [t.wall_s for t in self.known if _point(t.config) == _point(config)]
        ranks = [t.wall_s for t in self.known if t.config.world_size == config.world_size]
        every = [t.wall_s for t in self.known]
        return statistics.median(same or ranks or every or [self.assumed_s])


def _point(config: RunConfig) -> tuple[object, ...]:
    return config.cell, config.settings, config.world_size, config.samples_per_rank, *_work(config)


def _work(config: RunConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in (*_WORK, *_STEPS))


def run_times(study: Study, statuses: Iterable[RunStatus], others: Iterable[Timed]) -> Times:
    """From the study's own runs if any has ended, else from those of other studies of equal work,
    else of any work.
    """
    ended = [(s.run.config, s.wall_s) for s in statuses if s.state == "ok"]
    own = [Timed(config, wall_s) for config, wall_s in ended if wall_s is not None]
    there = [] if own else list(others)
    works = {_work(s.run.config) for s in statuses}
    alike = [timed for timed in there if _work(timed.config) in works]
    assumed, known = assumed_s(study), own or alike or there
    if not known:
        half = ": half of time_limit_s, the study names no expected_run_s"
        return Times(
            [], assumed, f"{assumed} s a run assumed{'' if study.expected_run_s else half}"
        )
    names = ", ".join(sorted({timed.config.study or "?" for timed in known}))
    where = "" if own else f" of {names}" if alike else f" of {names}, which is other work"
    runs = f"{len(known)} run{'s' if len(known) > 1 else ''}"
    median = statistics.median(timed.wall_s for timed in known)
    return Times(known, assumed, f"run time {median:.0f} s measured in {runs}{where}")


def of_other_studies(folder: Path, site: str) -> Iterator[Timed]:
    """Runs that ended ok in the studies beside `folder` whose jobs went to this site."""
    for record in sorted(folder.parent.glob("*/jobs.jsonl")):
        try:
            at_site = any(job.site == site for job in read_records(record))
        except (UsageError, OSError):  # not this study's fault
            continue
        if at_site and record.parent != folder:
            logs = sorted((record.parent / "runs").glob("*.jsonl"))
            yield from _timed(log for log in logs if ".attempt-" not in log.name)


def _timed(logs: Iterable[Path]) -> Iterator[Timed]:
    for log in itertools.islice(logs, _MOST_LOGS):
        try:
            run = read_run(log)
            wall_s = run.exit.get("wall_s")
            if run.state == "ok" and run.config is not None and isinstance(wall_s, int | float):
                yield Timed(run.config, float(wall_s))
        except (ValueError, LookupError, TypeError, AttributeError):  # a damaged log
            continue
