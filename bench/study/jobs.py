"""What jobs leave in a study's folder: a record of each, and what each says in jobs/JOB.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bench.config import UsageError, explain
from bench.study.limits import MAX_LAUNCHES

JobNumber = Annotated[str, Field(pattern="^[0-9]{1,18}$")]  # of a job in Slurm
_Text = Annotated[str, Field(max_length=4096)]


class JobRecord(BaseModel):
    """One line of jobs.jsonl: a job started or submitted here; other keys are for people."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    script: str = ""
    launches: int = Field(ge=1, le=MAX_LAUNCHES)
    job: str = ""
    site: str = ""
    slurm_id: JobNumber = ""
    after: list[str] = []


class JobEvent(BaseModel):
    """One line of jobs/JOB.jsonl: that the job began or ended."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    event: _Text
    job: Annotated[JobNumber, BeforeValidator(str)] = ""
    restart: int = Field(0, ge=0, lt=2**63)
    reason: Annotated[_Text, AfterValidator(lambda text: " ".join(text.split()))] = ""


def read_records(path: Path) -> list[JobRecord]:
    """Read the records of a jobs.jsonl, if there is one. Raises UsageError on a line that is none.

    A last line that a kill or a full disk has torn says nothing.
    """
    records = []
    data = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(data[: whole_bytes(data)].splitlines(), start=1):
        try:
            records.append(JobRecord.model_validate_json(line))
        except ValidationError as error:
            where = f"{path}, line {number}, is no record of a job ({explain(error)})"
            raise UsageError(f"{where}; remove the line") from None
    return records


def whole_bytes(data: bytes) -> int:
    """Count the bytes of a jobs.jsonl up to a torn last line."""
    last = data.rpartition(b"\n")[2]
    try:
        JobRecord.model_validate_json(last)
    except ValidationError:
        return len(data) - len(last)
    return len(data)  # written by hand, without a line end


def read_events(text: bytes) -> Iterator[JobEvent]:
    """Read what a job said of itself; skip a line that a kill has torn, or that is no event."""
    for line in text.splitlines():
        with suppress(ValidationError):
            yield JobEvent.model_validate_json(line)
