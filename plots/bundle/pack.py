"""Pack one study for citing: refuse a folder that contradicts itself, write one archive with a
fresh report and a manifest of every file. Or pack its logs alone, in place.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePath

from bench.config import UsageError
from bench.record import archive, parse_run
from bench.record.user_code import FOLDER
from bench.study.disk import take_lock, write_whole
from bench.study.files import read_study
from bench.study.jobs import read_records
from bench.study.plan import plan
from plots.bundle import check
from plots.bundle.check import Contents, Logs
from plots.report import write as report

_BELONGS = (
    *("study.toml", "jobs.jsonl", "job-*.sh", "runs/*.jsonl", "runs/*.out"),
    *("jobs/*", "collectives/*.jsonl", f"*/{FOLDER}/**/*"),
)
_STAYS = {"study.toml", "jobs.jsonl"}  # beside an archive of the logs: a study's file, and its lock
_REPORT = ("report.md", "report.html", "summary.json", "figures/*", "*.csv")  # made afresh


def bundle(folder: Path, out: Path | None, force: bool = False) -> Path:
    """Write FOLDER.tar.gz beside the folder, or to `out`; the same folder gives the same bytes.

    Raises UsageError where the folder contradicts itself or is being worked in, or where the
    archive cannot be written, or is there with other contents and not to be replaced (`force`).
    """
    name = folder.resolve().name
    place = folder.resolve().parent if out is None else out
    target = place / f"{name}.tar.gz" if place.is_dir() else place
    with _nobody_works_in(folder):
        contents = _of_study(folder)
        if "study.toml" not in contents:
            no_plan = "there is no study.toml, and so no plan"
            raise UsageError(f"{folder}: {no_plan}; bundle a study that python -m slurm ran")
        study, logs = read_study(folder / "study.toml"), _logs(folder, contents)
        blocks = max([study.blocks, *(x.blocks for x in read_records(folder / "jobs.jsonl"))])
        planned = {r.id: r.config for block in plan(study, blocks, folder / "runs") for r in block}
        _refuse(folder, check.problems(contents, logs, study, planned))
        with tempfile.TemporaryDirectory() as fresh:
            report.make(folder, Path(fresh))
            made = _read(Path(fresh), _REPORT)
        _require_unchanged(folder, contents)
        _refuse(folder, check.stale_report(_read(folder, _REPORT), made))
    files = {**contents, **made}
    listed = [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(files.items())
    ]
    manifest = {"schema": 2, "folder": name, "files": listed}
    files["MANIFEST.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    data = archive.pack({f"{name}/{path}": files[path] for path in files}, _newest(logs))
    if not force and target.exists() and target.read_bytes() != data:
        cure = "replace it with --force, or name another --out"
        raise UsageError(f"{target} is there with other contents; {cure}")
    return write_whole(target, data)


def archive_logs(folder: Path) -> Path:
    """Move a study's logs and job scripts into FOLDER/logs.tar.gz, and return its path.

    The same logs give the same bytes. Raises UsageError where there are none, where the folder is
    being worked in, and where a file cannot be written or removed.
    """
    with _nobody_works_in(folder):
        contents = _of_study(folder)
        _refuse(folder, check.at_work(contents))
        moved = {path: data for path, data in contents.items() if path not in _STAYS}
        if not moved:
            raise UsageError(f"{folder} holds no logs to archive; run the study first")
        data = archive.pack(moved, _newest(_logs(folder, moved)))
        _require_unchanged(folder, contents)
        target = write_whole(folder / archive.NAME, data)
        if archive.contents(folder) != moved:
            raise UsageError(f"{target} does not hold what was written; no log was removed")
        for path in moved:
            try:
                (folder / path).unlink(missing_ok=True)
            except OSError as error:
                why = f"{folder / path} cannot be removed: {error.strerror}"
                raise UsageError(f"{why}; it is archived; remove it, or archive again") from None
        for directory in sorted({p for x in moved for p in PurePath(x).parents}, reverse=True):
            with suppress(OSError):  # holds what does not belong to the study
                (folder / directory).rmdir()
    return target


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
    """Read what belongs to the study, in its folder and in the archive of its logs, by path."""
    contents = _read(folder, _BELONGS)
    for path, data in archive.contents(folder).items():
        if contents.setdefault(path, data) != data:
            raise archive.differs(folder / path)
    return dict(sorted(contents.items()))


def _read(folder: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    matches = {path for pattern in patterns for path in folder.glob(pattern)}
    paths = sorted(path for path in matches if path.is_file() and path.suffix != ".tmp")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _refuse(folder: Path, contradictions: Iterator[str]) -> None:
    """Raise UsageError with the first problem and the number of the others."""
    if problems := list(contradictions):
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UsageError(f"{folder} contradicts itself: {problems[0]}{more}")


def _logs(folder: Path, contents: Contents) -> Logs:
    logs = [x for x in contents if x.startswith("runs/") and x.endswith(".jsonl")]
    return {path: parse_run(folder / path, contents[path]) for path in logs}


def _newest(logs: Logs) -> int:
    """Find when the newest run began, in seconds since 1970; 0 where no run says."""
    starts = (run.host["started"] for run in logs.values() if "started" in run.host)
    return int(max((datetime.fromisoformat(x).timestamp() for x in starts), default=0))
