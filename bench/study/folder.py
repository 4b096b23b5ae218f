"""The folder of one study under results/: what is in it, who may work in it, and what has become of
every run.

study.toml           the study as it was first run; its `blocks` is the planned number
jobs.jsonl           one line per job: script, time, blocks asked for; locked by the job that is
                     running, or being submitted
job-001.sh, ...      the job scripts as they were executed; job-n004-b00-001.sh: of block 0 at 4
                     nodes, as it was submitted
job-report-001.sh    the job that writes the report when those have ended
runs/ID.jsonl, .out  run log, and what the run printed; ID.attempt-1.jsonl, .out: of a run that was
                     done again
jobs/, calibration/  under Slurm: what jobs say of themselves and print; plain processes on every
                     node, before and after
SHIPPED              only in the studies that come with the project: nothing is added to them
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from bench.config import UsageError
from bench.study.definition import Study
from bench.study.disk import take_lock, write_whole
from bench.study.files import read_study
from bench.study.jobs import JobRecord, read_records

RESULTS = Path(
    "results/mine"
)  # what users measure; the studies that come with the project lie beside it


class StudyFolder:
    """Paths of one study's folder, and the few changes made to it."""

    def __init__(self, results: Path, study: Study | str) -> None:
        self.path = results / (study if isinstance(study, str) else study.name)
        self.runs = self.path / "runs"
        self._copy = self.path / "study.toml"
        self._jobs = self.path / "jobs.jsonl"

    def check_own(self) -> None:
        """Raise UsageError where nothing may be added: in a study that comes with the project, or
        where its lock is gone.
        """
        self.check_not_shipped()
        if self._copy.exists() and not self._jobs.exists():
            raise UsageError(
                f"{self._jobs} is gone, and with it the lock of a job that may still be running; "
                f"if none is: touch {self._jobs}"
            )

    def lock(self) -> IO[str]:
        """Take the folder for one job, until the returned file and all it was handed to are closed;
        makes the folder.
        """
        self.check_own()
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            file = self._jobs.open("a")
        except OSError as error:
            raise UsageError(
                f"{error.filename}: {error.strerror}; choose another --results"
            ) from None
        for _ in range(20):  # for a second: somebody may only be asking whether it is taken
            if take_lock(file, alone=True):
                return file
            time.sleep(0.05)
        file.close()
        raise UsageError(
            f"{self.path}: another job of this study is running, or being submitted; wait for it "
            f"or stop it"
        )

    def is_locked(self) -> bool:
        """Whether a job of this study is running."""
        try:
            with self._jobs.open() as file:
                return not take_lock(file, alone=False)
        except FileNotFoundError:
            return False

    def check_not_shipped(self) -> None:
        """Raise UsageError in a study that comes with the project."""
        if (self.path / "SHIPPED").exists():
            raise UsageError(
                f"{self.path} comes with the project and is never added to; choose another "
                f"--results, as {RESULTS}"
            )

    def check_same(self, study: Study) -> None:
        """Raise UsageError where the folder holds runs of a study that differs in more than blocks
        and times.
        """
        if (kept := self.kept()) is None:
            return
        old, new = _flat(kept), _flat(study)
        for key in sorted(
            (old.keys() | new.keys()) - {"blocks", "expected_run_s", "time_limit_s", "site"}
        ):
            if old.get(key) != new.get(key):
                self.check_not_shipped()  # then another name for the study would be of no use
                raise UsageError(
                    f"{self._copy} is of another study of this name: {key}={old.get(key)!r} "
                    f"there, {new.get(key)!r} now; "
                    "give the study a new name, or choose another --results"
                )

    def keep_study(self, text: str) -> None:
        """Keep the study as it was first run:
        the report takes margin and planned blocks from it.
        """
        if not self._copy.exists():
            write_whole(self._copy, text)

    def kept(self) -> Study | None:
        """The study as it was first run, if it was."""
        return read_study(self._copy) if self._copy.exists() else None

    def asked_blocks(self, study: Study) -> int:
        """The study's blocks, or more if an earlier job added some."""
        return max([study.blocks, *(job.blocks for job in self.read_jobs())])

    def planned_blocks(self, study: Study) -> int:
        """The number of blocks decided before the first run."""
        return (self.kept() or study).blocks

    def read_jobs(self) -> list[JobRecord]:
        """One record for each job that was started or submitted, in order."""
        return read_records(self._jobs)

    def add_job(self, jobs: IO[str], script: str, **facts: object) -> Path:
        """Keep a job script under the next free name, and record the job in the locked `jobs`."""
        path = self.add_script(script, "")
        self.record_job(jobs, path, **facts)
        return path

    def add_script(self, script: str, job: str) -> Path:
        """Keep a job script under the next free name."""
        path = _free(self.path, f"job-{job}-{{:03d}}.sh" if job else "job-{:03d}.sh")
        write_whole(path, script)
        return path

    def keep_script(self, script: Path, job: str) -> Path | None:
        """The kept copy of a job's script that was submitted by hand, or by us before we were
        killed; None if it is gone.
        """
        if script.resolve().parent == self.path.resolve():
            return script
        try:
            return self.add_script(script.read_text(encoding="utf-8"), job)
        except (OSError, ValueError):
            return None

    def record_job(self, jobs: IO[str], script: Path | None, **facts: object) -> None:
        """Record a job in the locked `jobs`; without `script` where nobody has it any more."""
        named = {} if script is None else {"script": script.name}
        line = (
            json.dumps({**named, "time": datetime.now(UTC).isoformat(timespec="seconds"), **facts})
            + "\n"
        )
        size = os.fstat(jobs.fileno()).st_size
        try:
            if os.write(jobs.fileno(), line.encode()) < len(line.encode()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(jobs.fileno(), size)  # a torn line would stop every later command
            raise UsageError(
                f"{self._jobs}: {error.strerror}; make room, then do the same again"
            ) from None

    @staticmethod
    def set_aside(log: Path) -> None:
        """Rename what is left of a run that must be done again."""
        files = (log, log.with_suffix(".out"))
        numbered = (
            [f.with_name(f"{f.stem}.attempt-{n}{f.suffix}") for f in files]
            for n in itertools.count(1)
        )
        free = next(targets for targets in numbered if not any(t.exists() for t in targets))
        for file, target in zip(files, free, strict=True):
            if file.exists():
                file.rename(target)


def _free(folder: Path, pattern: str) -> Path:
    return next(
        path for n in itertools.count(1) if not (path := folder / pattern.format(n)).exists()
    )


def _flat(study: Study) -> dict[str, Any]:
    """Every value under its dotted key."""
    flat: dict[str, Any] = {}
    for key, value in study.model_dump(mode="json").items():
        flat |= (
            {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        )
    return flat
