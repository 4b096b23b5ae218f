"""What in a study's folder contradicts the rest of it: pure functions of its files' contents."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from bench.config import RunConfig
from bench.record import Run, allocation
from bench.study.definition import Study
from bench.study.jobs import JobRecord, read_events
from bench.study.plan import calibration_of
from bench.study.status import difference
from plots.read.runs import ATTEMPT

Contents = Mapping[str, bytes]  # path below the folder -> what the file holds
Logs = Mapping[str, Run]
Configs = Mapping[str, RunConfig]  # by run id

_DIFFERS = 1e-9  # relative: another machine's last bits


def is_log(path: str) -> bool:
    """Whether a file of the folder is a run log, of a run or of a calibration."""
    return path.startswith(("runs/", "calibration/")) and path.endswith(".jsonl")


def is_attempt(path: str) -> bool:
    """Whether a log is of an attempt that was done again."""
    return ATTEMPT.search(path) is not None


def is_last(path: str) -> bool:
    """Whether a log is what became of a planned run."""
    return path.startswith("runs/") and not is_attempt(path)


def problems(
    contents: Contents, logs: Logs, study: Study, planned: Configs, jobs: Iterable[JobRecord]
) -> Iterator[str]:
    """What contradicts itself in a folder's files; a run that is missing does not."""
    for job in jobs:  # one found in the queue may have no script
        if job.script and job.script not in contents:
            yield f"jobs.jsonl names {job.script}, which is not there"
        elif not job.script and not job.slurm_id:
            yield "jobs.jsonl: a record names neither a job script nor a job"
    yield from _at_work(contents)
    for path, run in logs.items():
        yield from (f"{path} {problem}" for problem in _log_problems(path, run, study, planned))
    yield from _doubled({path: run for path, run in logs.items() if is_last(path)})


def _at_work(contents: Contents) -> Iterator[str]:
    """Jobs whose last start has no end; jobs of a batch system hold no lock."""
    for path in sorted(
        path for path in contents if path.startswith("jobs/") and path.endswith(".jsonl")
    ):
        said = [(e.event, e.job, e.restart) for e in read_events(contents[path])]
        begun = [(job, restart) for event, job, restart in said if event == "begin"]
        if begun and ("end", *begun[-1]) not in said:
            place = allocation(*begun[-1])
            yield (
                f"{path}: {place} has begun and not ended; wait for it, or submit again if it "
                f"is gone (python -m slurm submit)"
            )


def _log_problems(path: str, run: Run, study: Study, planned: Configs) -> Iterator[str]:
    if is_last(path):  # an earlier attempt may be why the run was done again
        if run.config is None and any(event["event"] == "start" for event in run.events):
            yield "is damaged, or of a later version: its start cannot be read"
        elif run.broken is not None:
            yield f"is damaged: {run.broken.removeprefix('damaged log: ')}"
        if run.state == "running":
            yield "has no end: wait for its job, or do it again if the job is gone"
    if (config := run.config) is None:
        return
    name = ATTEMPT.sub("", PurePath(path).name)
    if config.study != study.name:
        yield f"is of study {config.study!r}, not of {study.name!r}"
    elif config.log_path is None or config.log_path.name != name:
        yield (
            f"is of another run than its name says: it was written as "
            f"{config.log_path and config.log_path.name}"
        )
    elif (wanted := _wanted(path, name, config, study, planned)) is None:
        yield "is of no run that study.toml plans; put it elsewhere"
    elif found := difference(wanted, config):
        yield f"has {found}"


def _wanted(
    path: str, name: str, found: RunConfig, study: Study, planned: Configs
) -> RunConfig | None:
    """What the study plans under that name."""
    if path.startswith("calibration/"):
        return calibration_of(study, found.samples_per_rank, found.block or 0)
    return planned.get(name.removesuffix(".jsonl"))


def _doubled(logs: Logs) -> Iterator[str]:
    measured: dict[object, str] = {}
    for path, run in logs.items():
        if (
            run.config is not None
            and run.processes is not None
            and (other := measured.setdefault(run.processes, path)) != path
        ):
            yield f"{path} and {other} are one and the same measurement"


def report_problems(kept: Contents, made: Contents) -> Iterator[str]:
    """Where the report that was `kept` says other than the one `made` now, and where equal work did
    not end equal.
    """
    fresh = json.loads(made["summary.json"])
    for check in fresh["equal_parameters"]:
        for mismatch in check["mismatches"]:
            yield f"cells that did equal work ended with different parameters: {mismatch}"
    if "report.md" in kept and kept["report.md"] != made["report.md"]:
        yield "report.md is not what the logs say; make it again: python -m plots report"
    if "summary.json" in kept:
        try:
            earlier = json.loads(kept["summary.json"])
            where = (
                _contradiction(earlier, fresh) if isinstance(earlier, dict) else "it is no table"
            )
        except (ValueError, RecursionError):
            where = "it is no JSON"
        if where is not None:
            yield (
                f"summary.json is not what the logs say ({where}); make it again: python -m "
                f"plots report"
            )


def _contradiction(kept: Any, fresh: Any, where: str = "") -> str | None:
    """Where two summaries differ, or None. A newer version may say more, and another machine round
    the last bits otherwise.
    """
    match kept, fresh:
        case dict(), dict():
            pairs = ((f"{where}.{key}", value, fresh.get(key)) for key, value in kept.items())
        case list(), list() if len(kept) == len(fresh):
            pairs = (
                (f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(kept, fresh, strict=True))
            )
        case float(), float() if math.isclose(kept, fresh, rel_tol=_DIFFERS):
            return None
        case _:
            return None if kept == fresh else where.lstrip(".")
    return next(
        (found for place, a, b in pairs if (found := _contradiction(a, b, place)) is not None), None
    )
