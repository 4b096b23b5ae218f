"""How long a run takes at a site: the median of runs that ended there, nearest first, else what the
study assumes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.config import RunConfig, UsageError
from bench.record import read_run
from bench.study.definition import Study
from bench.study.jobs import read_records
from bench.study.status import RunStatus
from slurm.fit import assumed_s

_MOST_LOGS = 200  # of another study: enough for a median, and read in a second
_WORK = (
    "model",
    "dataset",
    "image_size",
    "device",
    "precision",
    "compile",
    "warmup_steps",
    "windows",
    "steps_per_window",
)


@dataclass(frozen=True)
class Timed:
    """One run that ended ok: what it was, and the seconds it took from its launcher's start to its
    end.
    """

    config: RunConfig
    wall_s: float


@dataclass(frozen=True)
class Times:
    """Seconds that a run may well take, and a phrase that says where they are from."""

    known: tuple[Timed, ...]
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
    return tuple(getattr(config, name) for name in _WORK)


def run_times(study: Study, statuses: Iterable[RunStatus], others: Iterable[Timed]) -> Times:
    """From the study's own runs if any has ended, else from those of other studies of equal work,
    else of any work.
    """
    own = [
        Timed(s.run.config, s.wall_s) for s in statuses if s.state == "ok" and s.wall_s is not None
    ]
    if own:
        return _measured(study, own, "")
    works = {_work(s.run.config) for s in statuses}
    there = list(others)
    if alike := [timed for timed in there if _work(timed.config) in works]:
        return _measured(study, alike, f" of {_names(alike)}")
    if there:
        return _measured(study, there, f" of {_names(there)}, which is other work")
    basis = (
        "" if study.expected_run_s else ": half of time_limit_s, the study names no expected_run_s"
    )
    return Times((), assumed_s(study), f"{assumed_s(study)} s a run assumed{basis}")


def _measured(study: Study, known: Sequence[Timed], where: str) -> Times:
    median = statistics.median(timed.wall_s for timed in known)
    runs = f"{len(known)} run{'s' if len(known) > 1 else ''}"
    return Times(
        tuple(known), assumed_s(study), f"run time {median:.0f} s measured in {runs}{where}"
    )


def _names(known: Sequence[Timed]) -> str:
    return ", ".join(sorted({timed.config.study or "?" for timed in known}))


def of_other_studies(folder: Path, site: str) -> Iterator[Timed]:
    """Runs that ended ok in the studies beside `folder` whose jobs went to this site."""
    for record in sorted(folder.parent.glob("*/jobs.jsonl")):
        if record.parent == folder:
            continue
        try:
            at_site = any(job.site == site for job in read_records(record))
        except (UsageError, OSError):  # not this study's fault
            continue
        logs = (
            log
            for log in sorted((record.parent / "runs").glob("*.jsonl"))
            if ".attempt-" not in log.name
        )
        yield from _timed(logs if at_site else ())


def _timed(logs: Iterable[Path]) -> Iterator[Timed]:
    for _, log in zip(range(_MOST_LOGS), logs, strict=False):
        try:
            run = read_run(log)
            wall_s = run.exit.get("wall_s")
            if run.state == "ok" and run.config is not None and isinstance(wall_s, int | float):
                yield Timed(run.config, float(wall_s))
        except (ValueError, LookupError, TypeError, AttributeError):  # a damaged log
            continue
