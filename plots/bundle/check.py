"""What in a study's folder contradicts the rest of it: pure functions of its files' contents."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath, PurePosixPath
from typing import Any

from bench.config import RunConfig
from bench.record import Run, allocation
from bench.record.user_code import folder_of
from bench.study.definition import Study
from bench.study.jobs import JobRecord, read_events
from bench.study.status import difference
from plots.read.runs import ATTEMPT, changed_study

Contents = Mapping[str, bytes]  # path below the folder -> what the file holds
Logs = Mapping[str, Run]  # by path
Configs = Mapping[str, RunConfig]  # by run id

_DIFFERS = 1e-9  # relative: another machine's last bits


def is_log(path: str) -> bool:
    """Whether a file of the folder is the log of a run."""
    return path.startswith("runs/") and path.endswith(".jsonl")


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
    yield from at_work(contents)
    if changed := changed_study(study, [r.config.study_sha256 for r in logs.values() if r.config]):
        yield f"{changed}; restore study.toml, whose first text every job script holds"
    measured: dict[object, str] = {}
    for path, run in logs.items():
        if is_last(path):  # an earlier attempt may be why the run was done again
            if run.config is None and any(event["event"] == "start" for event in run.events):
                yield f"{path} is damaged, or of a later version: its start cannot be read"
            elif run.broken is not None:
                yield f"{path} is damaged: {run.broken.removeprefix('damaged log: ')}"
            if run.state == "running":
                yield f"{path} has no end: wait for its job, or do it again if the job is gone"
            if run.config and (other := measured.setdefault(run.processes or path, path)) != path:
                yield f"{path} and {other} are one and the same measurement"
        if problem := _without_code(path, run, contents):
            yield problem
        if run.config is not None and (problem := _other_run(path, run.config, study, planned)):
            yield f"{path} {problem}"


def _without_code(path: str, run: Run, contents: Contents) -> str:
    """Which file of the user's own model or data set is not there as the run loaded it; or ''."""
    files = {**run.host.get("user_code", {}), **run.end.get("user_code", {})}
    for name, sha256 in files.items():
        copy = str(PurePosixPath(path).parent / folder_of(files) / name)
        if hashlib.sha256(contents.get(copy, b"")).hexdigest() != sha256:
            wrong = "was changed since" if copy in contents else "is missing; it is what"
            return f"{copy} {wrong} {path} ran"
    return ""


def at_work(contents: Contents) -> Iterator[str]:
    """Jobs whose last start has no end; jobs of a batch system hold no lock."""
    for path in sorted(path for path in contents if PurePath(path).match("jobs/*.jsonl")):
        events = [(e.event, e.job, e.restart) for e in read_events(contents[path])]
        begun = [place for event, *place in events if event == "begin"]
        if begun and ("end", *begun[-1]) not in events:
            cure = "wait for it, or submit again if it is gone (python -m slurm submit)"
            yield f"{path}: {allocation(*begun[-1])} has begun and not ended; {cure}"


def _other_run(path: str, config: RunConfig, study: Study, planned: Configs) -> str:
    """In what a log is not of the run that the study plans under its name; '' if in nothing."""
    name = ATTEMPT.sub("", PurePath(path).name)
    written = config.log_path and config.log_path.name
    if config.study != study.name:
        return f"is of study {config.study!r}, not of {study.name!r}"
    if written != name:
        return f"is of another run than its name says: it was written as {written}"
    wanted = planned.get(name.removesuffix(".jsonl"))
    if wanted is None:
        return "is of no run that study.toml plans; put it elsewhere"
    other = difference(wanted, config)
    return f"has {other}" if other else ""


def report_problems(kept: Contents, made: Contents) -> Iterator[str]:
    """Where the report that was `kept` contradicts the one `made`, or equal work ended apart."""
    fresh = json.loads(made["summary.json"])
    for check in fresh["equal_parameters"]:
        for mismatch in check["mismatches"]:
            yield f"cells that did equal work ended with different parameters: {mismatch}"
    again = "make it again: python -m plots report"
    if kept.get("report.md", made["report.md"]) != made["report.md"]:
        yield f"report.md is not what the logs say; {again}"
    try:
        where = _contradiction(json.loads(kept.get("summary.json", b"{}")), fresh)
    except (ValueError, RecursionError):
        where = "it is no JSON"
    if where is not None:
        yield f"summary.json is not what the logs say ({where or 'it is no table'}); {again}"


def _contradiction(kept: Any, fresh: Any, where: str = "") -> str | None:
    """Where two summaries differ, or None. A newer version may say more, and round otherwise."""
    match kept, fresh:
        case dict(), dict():
            pairs = [(f"{where}.{key}", value, fresh.get(key)) for key, value in kept.items()]
        case list(), list() if len(kept) == len(fresh):
            both = zip(kept, fresh, strict=True)
            pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(both)]
        case float(), float() if math.isclose(kept, fresh, rel_tol=_DIFFERS):
            return None
        case _:
            return None if kept == fresh else where.lstrip(".")
    contradictions = (_contradiction(a, b, place) for place, a, b in pairs)
    return next((place for place in contradictions if place is not None), None)
