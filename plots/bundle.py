"""One study packed for citing, with a fresh report and a manifest, or its logs packed in place."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePath

from bench.config import UsageError
from bench.record import USER_CODE, allocation, archive
from bench.study.disk import take_lock, write_whole
from bench.study.folder import JobEvent, read_lines
from plots.report import write as report

_BELONGS = (
    *("study.toml", "jobs.jsonl", "job-*.sh", "runs/*.jsonl", "runs/*.out"),
    *("jobs/*", "collectives/*.jsonl", f"*/{USER_CODE}/**/*"),
)
_STAYS = ("study.toml", "jobs.jsonl")  # beside an archive of the logs: a study's file, and its lock
_REPORT = ("report.md", "report.html", "summary.json", "figures/*", "*.csv")
_STARTED = re.compile(rb'"started": "([^"]+)"')  # in the first line of a run log


def bundle(folder: Path, out: Path | None) -> Path:
    """Write FOLDER.tar.gz beside the folder, or to `out` (a file or a folder); return its path.

    The same folder gives the same bytes. Raises UsageError if the study has no study.toml or no
    usable run, if a job runs or recorded no end, or if the archive exists with other contents. The
    report in the archive says what else is wrong.
    """
    name, place = folder.resolve().name, out or folder.resolve().parent
    target = place / f"{name}.tar.gz" if place.is_dir() else place
    with _contents(folder) as files:
        if "study.toml" not in files:
            wrong = f"{folder}: there is no study.toml, and so no plan"
            raise UsageError(f"{wrong}; bundle a study that python -m slurm ran")
        with tempfile.TemporaryDirectory() as fresh:
            report.make(folder, Path(fresh))
            files |= _read(Path(fresh), _REPORT)
    listed = [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(files.items())
    ]
    manifest = {"schema": 2, "folder": name, "files": listed}
    files["MANIFEST.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    data = archive.pack({f"{name}/{path}": files[path] for path in files}, _newest(files))
    if target.exists() and target.read_bytes() != data:
        raise UsageError(f"{target} is there with other contents; remove it or name another --out")
    return write_whole(target, data)


def archive_logs(folder: Path) -> Path:
    """Move a study's logs and job scripts into FOLDER/logs.tar.gz, and return its path.

    The same logs give the same bytes. Raises UsageError if the folder has no logs, or if a job runs
    or recorded no end. If the archive reads back differently, it raises too and removes no log.
    """
    with _contents(folder) as files:
        moved = {path: data for path, data in files.items() if path not in _STAYS}
        if not moved:
            raise UsageError(f"{folder} holds no logs to archive; run the study first")
        data = archive.pack(moved, _newest(moved))
        target = write_whole(folder / archive.NAME, data)
        if archive.contents(folder) != moved:
            raise UsageError(f"{target} does not hold what was written; no log was removed")
        for path in moved:
            (folder / path).unlink(missing_ok=True)
        for directory in sorted({p for x in moved for p in PurePath(x).parents}, reverse=True):
            with suppress(OSError):  # holds what does not belong to the study
                (folder / directory).rmdir()
    return target


@contextmanager
def _contents(folder: Path) -> Iterator[dict[str, bytes]]:
    """Yield the bytes of a study's files by path; meanwhile no job of the study can start.

    Files in logs.tar.gz are among them. Raises UsageError if a job runs or recorded no end, or if a
    file and its archived copy differ.
    """
    with ExitStack() as locked:
        if (folder / "jobs.jsonl").exists():
            file = locked.enter_context((folder / "jobs.jsonl").open())
            if not take_lock(file, alone=False):
                running = f"{folder}: a job of this study is running"
                raise UsageError(f"{running}; wait for it or stop it")
        files = _read(folder, _BELONGS)
        for path, data in archive.contents(folder).items():
            if files.setdefault(path, data) != data:
                both = f"{folder / path} is another file in {archive.NAME} beside it"
                raise UsageError(f"{both}; remove one of the two")
        for path in sorted(path for path in files if PurePath(path).match("jobs/*.jsonl")):
            events = [(e.event, e.job, e.restart) for e in read_lines(JobEvent, files[path])]
            begun = [place for event, *place in events if event == "begin"]
            if begun and ("end", *begun[-1]) not in events:
                job = f"{folder}: {path}: {allocation(*begun[-1])} has begun and not ended"
                cure = "wait for it, or submit again if it is gone (python -m slurm submit)"
                raise UsageError(f"{job}; {cure}")
        yield files


def _read(folder: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    matches = {path for pattern in patterns for path in folder.glob(pattern)}
    paths = sorted(path for path in matches if path.is_file() and path.suffix != ".tmp")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _newest(files: Mapping[str, bytes]) -> int:
    """Return when the newest run began, in seconds since 1970; 0 if no run says when."""
    heads = (data.partition(b"\n")[0] for path, data in files.items() if path.startswith("runs/"))
    starts = [start.decode() for head in heads for start in _STARTED.findall(head)]
    return int(max((datetime.fromisoformat(start).timestamp() for start in starts), default=0))
