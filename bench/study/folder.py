"""The folder of one study under results/: its files, its lock, and its record of jobs.

study.toml           the study as it was first run; its `launches` is the planned number
jobs.jsonl           one line per job: script, time, launches; locked while a job runs or starts
job-001.sh, ...      the job scripts as executed; job-n004-launch00-001.sh runs launch 0 at 4 nodes
job-report-001.sh    the job script that writes the report after all other jobs
runs/ID.jsonl, .out  a run's log and output; ID.attempt-1.jsonl, .out if the run was repeated later
jobs/                under Slurm, when each job began and how it ended
collectives/         logs of `python -m bench collectives` on the same machine
logs.tar.gz          once logs are archived: the job scripts, runs/, jobs/ and collectives/
SHIPPED              only in the studies that come with the project: nothing is added to them
"""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import IO, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bench.config import UsageError
from bench.record import append_event, archive
from bench.study.definition import MAY_CHANGE, Study
from bench.study.disk import take_lock, write_whole
from bench.study.files import read_study
from bench.study.looks import MAX_LAUNCHES

RESULTS = Path("results/mine")  # what users measure, beside what comes with the project

COLLECTIVES = "collectives"  # beside runs/: logs of `python -m bench collectives`
SHIPPED = "SHIPPED"  # the file in a study that comes with the project


JobNumber = Annotated[str, Field(pattern="^[0-9]{1,18}$")]  # of a job in Slurm
_Text = Annotated[str, Field(max_length=4096)]


class JobRecord(BaseModel):
    """One line of jobs.jsonl: a job that was started or submitted; other keys are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    launches: int = Field(ge=1, le=MAX_LAUNCHES)
    job: str = ""
    slurm_id: JobNumber = ""
    after: list[str] = []


class JobEvent(BaseModel):
    """One line of jobs/JOB.jsonl, which says that the job began or ended."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    event: _Text
    job: Annotated[JobNumber, BeforeValidator(str)] = ""
    restart: int = Field(0, ge=0, lt=2**63)
    reason: Annotated[_Text, AfterValidator(lambda text: " ".join(text.split()))] = ""


_Line = TypeVar("_Line", JobRecord, JobEvent)


def read_lines(kind: type[_Line], data: bytes) -> list[_Line]:
    """Parse each line as a `kind`; skip invalid lines, which a kill or a full disk leaves."""
    lines = []
    for line in data.splitlines():
        with suppress(ValidationError):
            lines.append(kind.model_validate_json(line))
    return lines


class StudyFolder:
    """Paths of one study's folder, and the few changes made to it."""

    def __init__(self, results: Path, study: Study | str) -> None:
        self.path = results / (study if isinstance(study, str) else study.name)
        self.runs = self.path / "runs"
        self._copy = self.path / "study.toml"
        self._jobs = self.path / "jobs.jsonl"

    def check_open(self) -> None:
        """Raise UsageError if the study comes with the project, or if its logs are archived."""
        if (self.path / SHIPPED).exists():
            cure = f"choose another --results, as {RESULTS}"
            raise UsageError(f"{self.path} comes with the project and is never added to; {cure}")
        if (self.path / archive.NAME).exists():
            file, path = (quote(str(p)) for p in (self.path / archive.NAME, self.path))
            unpack = f"tar xzf {file} -C {path} && rm {file}"
            raise UsageError(f"{self.path}: its logs are archived; unpack them first: {unpack}")

    def check_way(self, slurm: bool) -> None:
        """Raise UsageError if earlier jobs used Slurm and this one does not, or the reverse.

        A job in Slurm's queue holds no lock, so both kinds of jobs might write the same logs.
        """
        if any(bool(job.slurm_id) != slurm for job in self.read_jobs()):
            how = "started here, without Slurm" if slurm else "submitted to Slurm"
            holds = f"{self.path} holds jobs that were {how}"
            raise UsageError(f"{holds}: a study stays with one; choose another --results")

    def lock(self) -> IO[str]:
        """Lock the folder. Raises UsageError if another job has the lock, or if none can be taken.

        The lock lasts until this process and all that inherit the returned file have closed it.
        """
        self.check_open()
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            file = self._jobs.open("a")
        except OSError as error:
            where = f"{error.filename}: {error.strerror}"
            raise UsageError(f"{where}; choose another --results") from None
        tries = 20.0  # a second where a job has the lock, a minute where somebody only asks for it
        while tries > 0:
            if take_lock(file, alone=True):
                return file
            tries -= 1 if self.is_locked() else 1 / 60
            time.sleep(0.05)
        file.close()
        taken = "another job of this study is running, or being submitted"
        raise UsageError(f"{self.path}: {taken}; wait for it or stop it")

    def is_locked(self) -> bool:
        """Return whether a job of this study is running, or being submitted."""
        try:
            with self._jobs.open() as file:
                return not take_lock(file, alone=False)
        except FileNotFoundError:
            return False

    def check_same(self, study: Study) -> None:
        """Raise UsageError if study.toml differs in a key other than launches and MAY_CHANGE."""
        if (kept := self.kept()) is None:
            return
        old, new = _flat(kept), _flat(study)
        for key in sorted((old.keys() | new.keys()) - MAY_CHANGE - {"launches"}):
            if old.get(key) != new.get(key):
                self.check_open()  # then another name for the study would be of no use
                differs = f"{key}={old.get(key)!r} there, {new.get(key)!r} now"
                cure = "give the --site it was submitted with, a new name or another --results"
                raise UsageError(
                    f"{self._copy} is of another study of this name: {differs}; {cure}"
                )

    def keep_study(self, text: str) -> None:
        """Write `text` to study.toml unless it exists. Raises UsageError if writing fails."""
        if not self._copy.exists():
            write_whole(self._copy, text)

    def kept(self) -> Study | None:
        """Return the study of study.toml; None if it is missing. Raises UsageError if invalid."""
        return read_study(self._copy) if self._copy.exists() else None

    def asked_launches(self, study: Study) -> int:
        """Return the largest number of launches that the study or a job asked for."""
        return max([study.launches, *(job.launches for job in self.read_jobs())])

    def read_jobs(self) -> list[JobRecord]:
        """Return one record for each job that was started or submitted, in order."""
        return read_lines(JobRecord, self._jobs.read_bytes()) if self._jobs.exists() else []

    def add_script(self, script: str, job: str) -> Path:
        """Write a script to the next free job[-JOB]-NNN.sh; return its path. Raises UsageError."""
        stem = f"job-{job}" if job else "job"
        names = (self.path / f"{stem}-{n:03d}.sh" for n in itertools.count(1))
        return write_whole(next(path for path in names if not path.exists()), script)

    def record_job(self, script: Path, **facts: object) -> None:
        """Add a job and `facts` to jobs.jsonl; hold the lock. Raises UsageError if this fails."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            append_event(self._jobs, "job", script=script.name, time=now, **facts)
        except OSError as error:
            cure = "make room, then do the same again"
            raise UsageError(f"{self._jobs}: {error.strerror}; {cure}") from None

    @staticmethod
    def set_aside(log: Path) -> None:
        """Rename log and output to the next free ID.attempt-N, before their run is repeated."""
        files = (log, log.with_suffix(".out"))
        free = (f"{log.stem}.attempt-{n}" for n in itertools.count(1))
        stem = next(n for n in free if not any(file.with_stem(n).exists() for file in files))
        for file in files:
            if file.exists():
                file.rename(file.with_stem(stem))


def _flat(study: Study) -> dict[str, Any]:
    """Return a study's values by key; a value inside a table has the key 'table.key'."""
    flat: dict[str, Any] = {}
    for key, value in study.model_dump(mode="json").items():
        nested = isinstance(value, dict)
        flat |= {f"{key}.{k}": v for k, v in value.items()} if nested else {key: value}
    return flat
