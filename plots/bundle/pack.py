"""Pack one study for citing: read its folder, refuse one that contradicts itself, write one
archive.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePath

from bench.config import UsageError
from bench.record import Run, read_run
from bench.study.definition import Study
from bench.study.disk import take_lock, write_whole
from bench.study.files import read_study
from bench.study.jobs import read_records
from bench.study.plan import plan
from plots.bundle import check
from plots.bundle.manifest import NAME, manifest
from plots.report import write as report

_BELONGS = (
    "study.toml",
    "jobs.jsonl",
    "job-*.sh",
    "runs/*.jsonl",
    "runs/*.out",
    "jobs/*",
    "calibration/*",
)
_REPORT = ("report.md", "summary.json", "figures/*", "*.csv")  # made afresh


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
        contents = _read(folder, _BELONGS)
        logs = {path: read_run(folder / path) for path in contents if check.is_log(path)}
        study, jobs = _study(folder), read_records(folder / "jobs.jsonl")
        blocks = max([study.blocks, *(job.blocks for job in jobs)])
        planned = {
            run.id: run.config for block in plan(study, blocks, folder / "runs") for run in block
        }
        _refuse(folder, check.problems(contents, logs, study, planned, jobs))
        kept = _read(folder, _REPORT)
        with tempfile.TemporaryDirectory() as fresh:
            report.make(folder, Path(fresh))
            made = _read(Path(fresh), _REPORT)
        _refuse_changed(folder, contents)
        _refuse(folder, check.report_problems(kept, made))
        there = {
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        }
    runs = {PurePath(path).stem: run for path, run in logs.items() if check.is_last(path)}
    left_out = sorted(there - contents.keys() - made.keys())
    facts = manifest(name, contents | made, runs, planned, left_out)
    _write(
        target,
        archive(
            name,
            {**contents, **made, NAME: (json.dumps(facts, indent=1) + "\n").encode()},
            _newest(logs),
        ),
        force,
    )
    return target


def _study(folder: Path) -> Study:
    """What was planned. Raises UsageError where the file is not there or not valid."""
    if not (folder / "study.toml").exists():
        raise UsageError(
            f"{folder}: there is no study.toml, so nobody can tell what was planned; bundle a "
            f"study that was run by python -m slurm"
        )
    return read_study(folder / "study.toml")


def archive(name: str, contents: Mapping[str, bytes], time: int) -> bytes:
    """A tar.gz of files below `name`/: sorted, of nobody, all of one time, so that equal contents
    are equal bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, data in sorted(contents.items()):
            info = tarfile.TarInfo(f"{name}/{path}")
            info.size, info.mtime = len(data), time
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def _newest(logs: Mapping[str, Run]) -> int:
    """Seconds since 1970 at which the newest run began, 0 where none says."""
    starts = []
    for run in logs.values():
        with suppress(LookupError, TypeError, ValueError):
            starts.append(int(datetime.fromisoformat(run.host["started"]).timestamp()))
    return max(starts, default=0)


def _read(folder: Path, patterns: tuple[str, ...]) -> dict[str, bytes]:
    paths = {
        path
        for pattern in patterns
        for path in folder.glob(pattern)
        if path.is_file() and path.suffix != ".tmp"
    }
    if away := sorted(
        path for path in paths if not path.resolve().is_relative_to(folder.resolve())
    ):
        raise UsageError(
            f"{away[0]} leads out of the folder, to {away[0].resolve()}; put a copy in its place, "
            f"or remove it"
        )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@contextmanager
def _nobody_works_in(folder: Path) -> Iterator[None]:
    """Keep jobs from starting here meanwhile. Raises UsageError where one is running."""
    try:
        file = (folder / "jobs.jsonl").open()
    except FileNotFoundError:
        yield
        return
    with file:
        if not take_lock(file, alone=False):
            raise UsageError(f"{folder}: a job of this study is running; wait for it or stop it")
        yield


def _refuse(folder: Path, found: Iterator[str]) -> None:
    """Raise UsageError with the first problem and the number of the others."""
    problems = list(found)
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UsageError(f"{folder} contradicts itself: {problems[0]}{more}")


def _refuse_changed(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Raise UsageError where a file is no longer what was read: jobs of a batch system hold no
    lock.
    """
    now = _read(folder, _BELONGS)
    if changed := sorted(
        path for path in now.keys() | contents.keys() if now.get(path) != contents.get(path)
    ):
        raise UsageError(
            f"{folder}: {changed[0]} changed while the study was read; bundle it when nobody "
            f"works in it"
        )


def _write(target: Path, data: bytes, force: bool) -> None:
    if not force and target.exists() and target.read_bytes() != data:
        raise UsageError(
            f"{target} is there with other contents; replace it with --force, or name another --out"
        )
    write_whole(target, data)
