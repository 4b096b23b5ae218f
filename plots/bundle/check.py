"""What in a study's folder contradicts the rest of it: pure functions of its files' contents."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from bench.config import Role, explain, fields_with
from bench.record import Run, allocation
from plots.analyse.comparability import EXCHANGE, VARIED
from plots.bundle.promise import Words, broken, promised, unlike, varied
from plots.read.calibrations import events
from plots.read.runs import ATTEMPT, Study

Contents = Mapping[str, bytes]  # path below the folder -> what the file holds
Logs = Mapping[str, Run]

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


def promises(contents: Contents) -> dict[str, Words]:
    """Options of each run by its id, as the last job script that names it gives them.

    Raises ValueError on a script that no shell would read.
    """
    scripts = sorted(path for path in contents if path.endswith(".sh") and "/" not in path)
    return {
        run_id: words
        for path in scripts
        for run_id, words in promised(contents[path].decode(errors="replace")).items()
    }


def problems(contents: Contents, logs: Logs) -> Iterator[str]:
    """What contradicts itself in a folder's files; a run that is missing does not."""
    if "study.toml" not in contents:
        yield (
            "there is no study.toml, so nobody can tell what was planned; bundle a study that "
            "was run by python -m slurm"
        )
        return
    try:
        study = tomllib.loads(contents["study.toml"].decode())
        Study.model_validate({"name": "", **study})
    except ValidationError as error:
        yield f"study.toml: {explain(error)}"
        return
    except (ValueError, RecursionError) as error:
        yield f"study.toml: {error}"
        return
    yield from _job_problems(contents)
    yield from _at_work(contents)
    try:
        options = promises(contents)
    except ValueError as error:
        yield f"a job script cannot be read: {error}"
        return
    for path, run in logs.items():
        words = (
            options.get(_own_name(path).removesuffix(".jsonl"), [])
            if path.startswith("runs/")
            else []
        )
        yield from (f"{path} {problem}" for problem in _log_problems(path, run, study, words))
    last = {path: run for path, run in logs.items() if is_last(path)}
    yield from _doubled(last)
    yield from _uneven(last, set(VARIED) - varied(study))


def _job_problems(contents: Contents) -> Iterator[str]:
    for number, line in enumerate(
        contents.get("jobs.jsonl", b"").decode(errors="replace").splitlines(), start=1
    ):
        try:
            job = json.loads(line)
        except (ValueError, RecursionError):
            job = None
        script = job.get("script") if isinstance(job, dict) else None
        if isinstance(script, str):
            if script not in contents:
                yield f"jobs.jsonl names {script}, which is not there"
        elif (
            not isinstance(job, dict) or "script" in job or "slurm_id" not in job
        ):  # one found in the queue may have no script
            yield f"jobs.jsonl: line {number} is no record of a job"


def _at_work(contents: Contents) -> Iterator[str]:
    """Jobs whose last start has no end; jobs of a batch system hold no lock."""
    for path in sorted(
        path for path in contents if path.startswith("jobs/") and path.endswith(".jsonl")
    ):
        said = [
            (e["event"], str(e.get("job")), str(e.get("restart", 0)))
            for e in events(contents[path])
            if "event" in e
        ]
        begun = [(job, restart) for event, job, restart in said if event == "begin"]
        if begun and ("end", *begun[-1]) not in said:
            place = allocation(*begun[-1])
            yield (
                f"{path}: {place} has begun and not ended; wait for it, or submit again if it "
                f"is gone (python -m slurm submit)"
            )


def _log_problems(path: str, run: Run, study: Mapping[str, Any], words: Words) -> Iterator[str]:
    if is_last(path):  # an earlier attempt may be why the run was done again
        if run.config is None and any(event["event"] == "start" for event in run.events):
            yield "is damaged, or of a later version: its start cannot be read"
        elif run.broken is not None:
            yield f"is damaged: {run.broken.removeprefix('damaged log: ')}"
        if run.state == "running":
            yield "has no end: wait for its job, or do it again if the job is gone"
    if run.config is None:
        return
    if run.config.study != study.get("name"):
        yield f"is of study {run.config.study!r}, not of {study.get('name')!r}"
        return
    if run.config.log_path is None or run.config.log_path.name != _own_name(path):
        yield (
            f"is of another run than its name says: it was written as "
            f"{run.config.log_path and run.config.log_path.name}"
        )
        return
    for difference in (*broken(words, run.config), *unlike(study, run.config)):
        yield f"has {difference}"


def _own_name(path: str) -> str:
    return ATTEMPT.sub("", PurePath(path).name)


def _doubled(logs: Logs) -> Iterator[str]:
    seen: dict[str, str] = {}
    measured: dict[object, str] = {}
    for path, run in logs.items():
        if run.config is not None:
            key = run.config.model_dump_json(exclude={*fields_with(Role.BOOKKEEPING | Role.FOLDER)})
            if (other := seen.setdefault(key, path)) != path:
                yield f"{path} and {other} are one and the same run"
            elif (
                run.processes is not None
                and (other := measured.setdefault(run.processes, path)) != path
            ):
                yield f"{path} and {other} are one and the same measurement"


def _uneven(logs: Logs, fixed: Iterable[str]) -> Iterator[str]:
    """Runs whose work is not the others': a study varies frameworks, ranks and batch, and what it
    says.
    """
    for name in sorted(fixed):
        values = {
            path: getattr(run.config, name)
            for path, run in logs.items()
            if run.config is not None and not (name in EXCHANGE and run.config.backend == "single")
        }
        usual = Counter(values.values()).most_common(1)
        yield from (
            f"{path} has {name}={v!r}, where most runs have {usual[0][0]!r}"
            for path, v in values.items()
            if v != usual[0][0]
        )


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
