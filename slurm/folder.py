"""The folder of one study under results/: what is in it, who may work in it, and what has become of every run.

study.toml           the study as it was first run; its `blocks` is the planned number
jobs.jsonl           one line per job: script, time, blocks asked for; locked by the job that is running, or being submitted
job-001.sh, ...      the job scripts as they were executed; job-n004-b00-001.sh: of block 0 at 4 nodes, as it was submitted
runs/ID.jsonl, .out  run log, and what the run printed; ID.attempt-1.jsonl, .out: of a run that was done again
jobs/, calibration/  under Slurm: what jobs say of themselves and print; plain processes on every node, before and after
"""

from __future__ import annotations

import fcntl
import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from bench.config import UsageError
from slurm.load import read_study
from slurm.study import Study


class StudyFolder:
    """Paths of one study's folder, and the few changes made to it."""

    def __init__(self, results: Path, study: Study) -> None:
        self.path = results / study.name
        self.runs = self.path / "runs"
        self._copy = self.path / "study.toml"
        self._jobs = self.path / "jobs.jsonl"

    def lock(self) -> IO[str]:
        """Take the folder for one job, until the returned file and all it was handed to are closed; makes the folder."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            file = self._jobs.open("a")
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}; choose another --results") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UsageError(f"{self.path}: another job of this study is running; wait for it or stop it") from None
        return file

    def is_locked(self) -> bool:
        """Whether a job of this study is running."""
        try:
            with self._jobs.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def check_same(self, study: Study) -> None:
        """Raise UsageError where the folder holds runs of a study that differs in more than blocks and times."""
        if (kept := self.kept()) is None:
            return
        old, new = _flat(kept), _flat(study)
        for key in sorted((old.keys() | new.keys()) - {"blocks", "expected_run_s", "time_limit_s"}):
            if old.get(key) != new.get(key):
                raise UsageError(
                    f"{self._copy} is of another study of this name: {key}={old.get(key)!r} there, {new.get(key)!r} now; "
                    "give the study a new name, or choose another --results"
                )

    def keep_study(self, text: str) -> None:
        """Keep the study as it was first run: the report takes margin and planned blocks from it."""
        if not self._copy.exists():
            _write(self._copy, text)

    def kept(self) -> Study | None:
        """The study as it was first run, if it was."""
        return read_study(self._copy) if self._copy.exists() else None

    def asked_blocks(self, study: Study) -> int:
        """The study's blocks, or more if an earlier job added some."""
        return max([study.blocks, *(int(job["blocks"]) for job in self.read_jobs())])

    def planned_blocks(self, study: Study) -> int:
        """The number of blocks decided before the first run."""
        return (self.kept() or study).blocks

    def read_jobs(self) -> list[dict[str, Any]]:
        """One entry for each job that was started or submitted, in order."""
        try:
            return [json.loads(line) for line in self._jobs.read_text().splitlines()]
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise UsageError(f"{self._jobs}: {error}; remove the broken line") from None

    def add_job(self, jobs: IO[str], script: str, blocks: int, runs: int) -> Path:
        """Keep a job script under the next free name, and record the job in the locked `jobs`."""
        path = self.add_script(script, "")
        self.record_job(jobs, path, blocks=blocks, runs=runs)
        return path

    def add_script(self, script: str, job: str) -> Path:
        """Keep a job script under the next free name."""
        path = _free(self.path, f"job-{job}-{{:03d}}.sh" if job else "job-{:03d}.sh")
        _write(path, script)
        return path

    def last_script(self, job: str) -> Path:
        """The newest script kept of a job, under the name it has or would have had."""
        kept = sorted(self.path.glob(f"job-{job}-*.sh"))
        return kept[-1] if kept else self.path / f"job-{job}-001.sh"

    def record_job(self, jobs: IO[str], script: Path, **facts: object) -> None:
        """Record a job in the locked `jobs`."""
        entry = {"script": script.name, "time": datetime.now(UTC).isoformat(timespec="seconds"), **facts}
        jobs.write(json.dumps(entry) + "\n")
        jobs.flush()

    def set_aside(self, log: Path) -> None:
        """Rename what is left of a run that must be done again."""
        files = (log, log.with_suffix(".out"))
        numbered = ([f.with_name(f"{f.stem}.attempt-{n}{f.suffix}") for f in files] for n in itertools.count(1))
        free = next(targets for targets in numbered if not any(t.exists() for t in targets))
        for file, target in zip(files, free, strict=True):
            if file.exists():
                file.rename(target)


def _free(folder: Path, pattern: str) -> Path:
    return next(path for n in itertools.count(1) if not (path := folder / pattern.format(n)).exists())


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def _flat(study: Study) -> dict[str, Any]:
    """Every value under its dotted key."""
    flat: dict[str, Any] = {}
    for key, value in study.model_dump(mode="json").items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return flat
