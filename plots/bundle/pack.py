"""Pack one study for citing: refuse a folder that contradicts itself, write one archive with a
manifest of every file, how the runs ended, what is missing and on what they ran. Or pack its logs
alone, in place.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from bench.config import UsageError
from bench.record import STATES, Run, archive, parse_run
from bench.record.user_code import FOLDER
from bench.study.disk import take_lock, write_whole
from bench.study.files import read_study
from bench.study.jobs import read_records
from bench.study.plan import plan
from plots.bundle import check
from plots.bundle.check import Contents, Logs
from plots.report import write as report

SCHEMA = 1  # of the manifest
_BELONGS = (
    *("study.toml", "jobs.jsonl", "job-*.sh", "runs/*.jsonl", "runs/*.out"),
    *("jobs/*", "collectives/*.jsonl", f"*/{FOLDER}/**/*"),
)
_STAYS = {"study.toml", "jobs.jsonl"}  # beside an archive of the logs: a study's file, and its lock
_REPORT = ("report.md", "report.html", "summary.json", "figures/*", "*.csv")  # made afresh
_OF_A_RANK = (
    *("hostname", "cpu", "cpus_on_node", "memory_bytes", "threads", "source"),
    *("gpu", "gpu_memory_bytes", "cuda", "cudnn"),
)


def bundle(folder: Path, out: Path | None, force: bool = False) -> Path:
    """Write FOLDER.tar.gz beside the folder, or to `out`; the same folder gives the same bytes.

    Raises UsageError where the folder contradicts itself, is being worked in or holds a link that
    leads out of it, or where the archive cannot be written, or is there with other contents and not
    to be replaced (`force`).
    """
    name = folder.resolve().name
    place = folder.resolve().parent if out is None else out
    target = place / f"{name}.tar.gz" if place.is_dir() else place
    with _nobody_works_in(folder):
        contents = _of_study(folder)
        if "study.toml" not in contents:
            no_plan = "there is no study.toml, and so no plan"
            raise UsageError(f"{folder}: {no_plan}; bundle a study that python -m slurm ran")
        study, jobs = read_study(folder / "study.toml"), read_records(folder / "jobs.jsonl")
        logs = _parsed(folder, contents)
        blocks = max([study.blocks, *(job.blocks for job in jobs)])
        planned = {r.id: r.config for block in plan(study, blocks, folder / "runs") for r in block}
        _refuse(folder, check.problems(contents, logs, study, planned, jobs))
        kept = _read(folder, _REPORT)
        with tempfile.TemporaryDirectory() as fresh:
            report.make(folder, Path(fresh))
            made = _read(Path(fresh), _REPORT)
        _require_unchanged(folder, contents)
        _refuse(folder, check.report_problems(kept, made))
        in_folder = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    left_out = in_folder - contents.keys() - made.keys() - {archive.NAME}
    facts = _manifest(name, contents | made, logs, planned, left_out)
    files = {**contents, **made, "MANIFEST.json": (json.dumps(facts, indent=1) + "\n").encode()}
    data = archive.pack({f"{name}/{path}": files[path] for path in files}, _newest(logs))
    if not force and target.exists() and target.read_bytes() != data:
        cure = "replace it with --force, or name another --out"
        raise UsageError(f"{target} is there with other contents; {cure}")
    return write_whole(target, data)


def archive_logs(folder: Path) -> Path:
    """Move a study's logs and job scripts into FOLDER/logs.tar.gz, and return its path.

    The same logs give the same bytes. Raises UsageError where there are none, where the folder is
    being worked in or holds a link that leads out of it, and where a file cannot be written or
    removed.
    """
    with _nobody_works_in(folder):
        contents = _of_study(folder)
        _refuse(folder, check.at_work(contents))
        moved = {path: data for path, data in contents.items() if path not in _STAYS}
        if not moved:
            raise UsageError(f"{folder} holds no logs to archive; run the study first")
        data = archive.pack(moved, _newest(_parsed(folder, moved)))
        _require_unchanged(folder, contents)
        target = write_whole(folder / archive.NAME, data)
        if archive.contents(folder) != moved:
            raise UsageError(f"{target} does not hold what was written; no log was removed")
        _remove(folder, moved)
    return target


def _remove(folder: Path, files: Iterable[str]) -> None:
    """Remove files of the folder that are archived, and what directories they leave empty."""
    for path in files:
        try:
            (folder / path).unlink(missing_ok=True)
        except OSError as error:
            cure = "it is archived; remove it, or archive again"
            why = f"{folder / path} cannot be removed: {error.strerror}"
            raise UsageError(f"{why}; {cure}") from None
    for directory in sorted({p for path in files for p in PurePath(path).parents}, reverse=True):
        with suppress(OSError):  # holds what does not belong to the study
            (folder / directory).rmdir()


def _require_unchanged(folder: Path, contents: Contents) -> None:
    """Raise UsageError where a job wrote meanwhile: those of a batch system hold no lock."""
    now = _of_study(folder)
    for path in sorted(now.keys() | contents.keys()):
        if now.get(path) != contents.get(path):
            late = "changed while the study was read; do it again when nobody works in it"
            raise UsageError(f"{folder}: {path} {late}")


@contextmanager
def _nobody_works_in(folder: Path) -> Iterator[None]:
    """Keep jobs from starting here meanwhile. Raises UsageError where one is running."""
    if not (folder / "jobs.jsonl").exists():
        yield
        return
    with (folder / "jobs.jsonl").open() as file:
        if not take_lock(file, alone=False):
            raise UsageError(f"{folder}: a job of this study is running; wait for it or stop it")
        yield


def _of_study(folder: Path) -> dict[str, bytes]:
    """What belongs to the study, in its folder and in the archive of its logs, by path."""
    contents = _read(folder, _BELONGS)
    for path, data in archive.contents(folder).items():
        if contents.setdefault(path, data) != data:
            raise archive.differs(folder / path)
    return dict(sorted(contents.items()))


def _read(folder: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    matches = {path for pattern in patterns for path in folder.glob(pattern)}
    paths = sorted(path for path in matches if path.is_file() and path.suffix != ".tmp")
    for path in paths:
        if not path.resolve().is_relative_to(folder.resolve()):
            away = f"leads out of the folder, to {path.resolve()}"
            raise UsageError(f"{path} {away}; put a copy in its place, or remove it")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _refuse(folder: Path, contradictions: Iterator[str]) -> None:
    """Raise UsageError with the first problem and the number of the others."""
    if problems := list(contradictions):
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UsageError(f"{folder} contradicts itself: {problems[0]}{more}")


def _manifest(
    name: str, contents: Contents, logs: Logs, planned: Iterable[str], left_out: Iterable[str]
) -> dict[str, Any]:
    """Plain values, in an order that depends on the contents alone; `planned`: ids of runs."""
    runs = {PurePath(path).stem: run for path, run in logs.items() if check.is_last(path)}
    states = {id_: runs[id_].state if id_ in runs else "planned" for id_ in sorted(planned)}
    counts = Counter(states.values())
    report = json.loads(contents["summary.json"])
    study = report["study"]
    return {
        "schema": SCHEMA,
        "folder": name,
        "study": tomllib.loads(contents["study.toml"].decode()),
        "blocks": {"planned": study["blocks_planned"], "usable": study["blocks_usable"]},
        "runs": {"planned": len(states), "by_state": {state: counts[state] for state in STATES}},
        "gaps": [
            {"run": id_, "state": state, "reason": runs[id_].problem if id_ in runs else None}
            for id_, state in states.items()
            if state != "ok"
        ],
        "points_with_missing_blocks": report["gaps"],
        "superseded_attempts": sorted(filter(check.is_attempt, contents)),
        "provenance": _provenance(runs.values()),
        "files": [
            {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for path, data in sorted(contents.items())
        ],
        "left_out": sorted(left_out),
    }


def _provenance(runs: Iterable[Run]) -> dict[str, list[Any]]:
    """Every value that the runs recorded of versions, code and hardware: of one, all agree."""
    seen: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        facts = [("platform", run.host.get("platform"))]
        for part in ("versions", "git", "env"):
            facts += [(f"{part}.{k}", value) for k, value in run.host.get(part, {}).items()]
        for rank in run.host.get("ranks", ()):
            facts += [(name, rank.get(name)) for name in _OF_A_RANK]
        for name, value in facts:
            if value is not None:
                seen[name].add(json.dumps(value, sort_keys=True))
    return {name: list(map(json.loads, sorted(values))) for name, values in sorted(seen.items())}


def _parsed(folder: Path, contents: Contents) -> dict[str, Run]:
    return {p: parse_run(folder / p, data) for p, data in contents.items() if check.is_log(p)}


def _newest(logs: Mapping[str, Run]) -> int:
    """Seconds since 1970 at which the newest run began, 0 where none says."""
    starts = [0]
    for run in logs.values():
        with suppress(LookupError, ValueError):
            starts.append(int(datetime.fromisoformat(run.host["started"]).timestamp()))
    return max(starts)
