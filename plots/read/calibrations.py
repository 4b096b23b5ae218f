"""What jobs left beside the runs: their calibrations, read as each job recorded them in
jobs/*.jsonl.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from bench.record import allocation
from plots.analyse import comparability
from plots.analyse.nodes import WHEN, Calibration
from plots.read.runs import Unusable, read_log

_Word = Annotated[str, Field(max_length=4096)]
_Number = Annotated[int, Field(ge=0, lt=2**63)]


@with_config(ConfigDict(extra="allow"))
class _Said(TypedDict):
    """One line of a job; what it says beyond `event` depends on that."""

    event: _Word
    job: NotRequired[_Word | _Number]
    restart: NotRequired[_Word | _Number]
    when: NotRequired[_Word]
    node: NotRequired[_Word]
    reason: NotRequired[_Word]
    log: NotRequired[Annotated[str, Field(pattern=r"^[^/\x00]{0,255}$")]]


_EVENT: TypeAdapter[Any] = TypeAdapter(_Said)


def read(folder: Path) -> list[Calibration] | None:
    """Every calibration that a job of FOLDER began, and every log in FOLDER/calibration that none
    recorded; None without jobs.
    """
    if not (folder / "jobs").is_dir():
        return None
    found = [
        c
        for path in sorted((folder / "jobs").glob("*.jsonl"))
        for c in _of_job(path, folder / "calibration")
    ]
    recorded = {c.log for c in found}
    strays = (p for p in sorted((folder / "calibration").glob("*.jsonl")) if p.name not in recorded)
    reason = "its job did not live to record it"
    return [
        *found,
        *(Calibration("", _allocation(p), "", "", log=p.name, reason=reason) for p in strays),
    ]


def _of_job(path: Path, logs: Path) -> Iterator[Calibration]:
    for event in events(path.read_bytes()):
        if event.get("event") == "calibration" and event.get("when") in WHEN:
            place = allocation(event.get("job", ""), event.get("restart", 0))
            yield _calibration(path.stem, place, event, logs)


def events(text: bytes) -> Iterator[Mapping[str, Any]]:
    """What a job said of itself, line by line; a line that a kill has torn, or that is no such
    event, says nothing.
    """
    for line in text.splitlines():
        with suppress(ValidationError):
            yield _EVENT.validate_json(line, strict=True)


def _calibration(job: str, place: str, event: Mapping[str, Any], logs: Path) -> Calibration:
    when, node, log = event["when"], event.get("node", ""), event.get("log", "")
    if not log:
        return Calibration(job, place, when, node, reason=event.get("reason", "not begun"))
    if not (logs / log).is_file():
        return Calibration(job, place, when, node, log=log, reason="its log is not there")
    run = read_log(logs / log)
    if isinstance(run, Unusable):
        return Calibration(job, place, when, node, log=log, reason=run.reason)
    assert run.config is not None  # of a usable log
    facts = comparability.facts(run.config, run.host, run.end)
    host = "".join(run.hosts)
    return Calibration(
        job, place, when, node, host, log, "", run.images_per_s, run.config.samples_per_step, facts
    )


def _allocation(path: Path) -> str:
    run = read_log(path)
    return "" if isinstance(run, Unusable) else run.allocation
