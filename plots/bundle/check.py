"""What in a study's folder contradicts the rest of it: pure functions of its files' contents."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import PurePath, PurePosixPath
from typing import Any

from bench.config import RunConfig
from bench.record import Run, allocation
from bench.record.user_code import folder_of
from bench.study.definition import Study
from bench.study.jobs import read_events
from bench.study.logs import ATTEMPT, changed_study
from bench.study.status import difference

Contents = Mapping[str, bytes]  # path below the folder -> what the file holds
Logs = Mapping[str, Run]  # by path
Configs = Mapping[str, RunConfig]  # by run id


def problems(contents: Contents, logs: Logs, study: Study, planned: Configs) -> Iterator[str]:
    """Name what contradicts itself in a folder's files; a run that is missing does not."""
    yield from at_work(contents)
    if changed := changed_study(study, [r.config.study_sha256 for r in logs.values() if r.config]):
        yield f"{changed}; restore study.toml, whose first text every job script holds"
    for path, run in logs.items():
        if not ATTEMPT.search(path):  # an earlier attempt may be why the run was done again
            if run.broken is not None:
                yield f"{path} is damaged: {run.broken.removeprefix('damaged log: ')}"
            if run.state == "running":
                yield f"{path} has no end: wait for its job, or do it again if the job is gone"
        if problem := _without_code(path, run, contents):
            yield problem
        if run.config is not None and (problem := _other_run(path, run.config, planned)):
            yield f"{path} {problem}"


def at_work(contents: Contents) -> Iterator[str]:
    """Name jobs whose last start has no end; jobs of a batch system hold no lock."""
    for path in sorted(path for path in contents if PurePath(path).match("jobs/*.jsonl")):
        events = [(e.event, e.job, e.restart) for e in read_events(contents[path])]
        begun = [place for event, *place in events if event == "begin"]
        if begun and ("end", *begun[-1]) not in events:
            cure = "wait for it, or submit again if it is gone (python -m slurm submit)"
            yield f"{path}: {allocation(*begun[-1])} has begun and not ended; {cure}"


def _without_code(path: str, run: Run, contents: Contents) -> str:
    """Name a file of the user's own model or data set that is not as the run loaded it; or ''."""
    files = {**run.host.get("user_code", {}), **run.end.get("user_code", {})}
    for name, sha256 in files.items():
        copy = str(PurePosixPath(path).parent / folder_of(files) / name)
        if hashlib.sha256(contents.get(copy, b"")).hexdigest() != sha256:
            wrong = "was changed since" if copy in contents else "is missing; it is what"
            return f"{copy} {wrong} {path} ran"
    return ""


def _other_run(path: str, config: RunConfig, planned: Configs) -> str:
    """Tell how a log differs from the run that the study plans under its name; '' if in nothing."""
    name = ATTEMPT.sub("", PurePath(path).name)
    wanted = planned.get(name.removesuffix(".jsonl"))
    if wanted is None:
        return "is of no run that study.toml plans; put it elsewhere"
    other = difference(wanted, config)
    return f"has {other}" if other else ""


def stale_report(kept: Contents, made: Contents) -> Iterator[str]:
    """Name each file of the report that was `kept` and is not the one `made` of the logs."""
    again = "is not what the logs say; make it again: python -m plots report"
    if kept.get("report.md", made["report.md"]) != made["report.md"]:
        yield f"report.md {again}"
    summary = kept.get("summary.json", made["summary.json"])
    try:
        same = _same(json.loads(summary), json.loads(made["summary.json"]))
    except ValueError:
        same = False
    if not same:
        yield f"summary.json {again}"


def _same(kept: Any, fresh: Any) -> bool:
    """Compare two summaries; numbers up to the last bits, in which machines differ."""
    match kept, fresh:
        case dict(), dict():
            return kept.keys() == fresh.keys() and all(_same(kept[k], fresh[k]) for k in kept)
        case list(), list():
            return len(kept) == len(fresh) and all(map(_same, kept, fresh))
        case float(), float():
            return math.isclose(kept, fresh, rel_tol=1e-9)
    return bool(kept == fresh)
