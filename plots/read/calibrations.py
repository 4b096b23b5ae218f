"""What jobs left beside the runs: their calibrations, read as each job recorded them in
jobs/*.jsonl.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.record import allocation
from bench.study.jobs import JobEvent, read_events
from plots.read.runs import Unusable, read_log

WHEN = ("start", "end")  # of a job, its rounds
Facts = Mapping[str, str]
FactsOf = Callable[[RunConfig, Mapping[str, Any], Mapping[str, Any]], Facts]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """One plain process on one node, as its job recorded it; `reason` says why it gives no number,
    '' if it does.

    `node` is the scheduler's name of the node, '' where a whole round is missing; `host` is its
    own, by which runs know it.
    """

    job: str
    allocation: str
    when: str
    node: str
    host: str = ""
    log: str = ""
    reason: str = ""
    step_seconds: float = math.nan
    samples_per_step: int = 0
    facts: Facts | None = None

    @property
    def images_per_s(self) -> float:
        return self.samples_per_step / self.step_seconds

    @property
    def usable(self) -> bool:
        return not self.reason


def read(folder: Path, facts: FactsOf) -> list[Calibration] | None:
    """Every calibration that a job of FOLDER began, and every log in FOLDER/calibration that none
    recorded; None without jobs.

    `facts` makes of a usable one what it may be compared by.
    """
    if not (folder / "jobs").is_dir():
        return None
    found = [
        c
        for path in sorted((folder / "jobs").glob("*.jsonl"))
        for c in _of_job(path, folder / "calibration", facts)
    ]
    recorded = {c.log for c in found}
    strays = (p for p in sorted((folder / "calibration").glob("*.jsonl")) if p.name not in recorded)
    reason = "its job did not live to record it"
    return [
        *found,
        *(
            Calibration(
                job="", allocation=_allocation(p), when="", node="", log=p.name, reason=reason
            )
            for p in strays
        ),
    ]


def _of_job(path: Path, logs: Path, facts: FactsOf) -> Iterator[Calibration]:
    for said in read_events(path.read_bytes()):
        if said.event == "calibration" and said.when in WHEN:
            yield _calibration(path.stem, said, logs, facts)


def _calibration(job: str, said: JobEvent, logs: Path, facts: FactsOf) -> Calibration:
    log = said.log
    begun = Calibration(
        job=job,
        allocation=allocation(said.job, said.restart),
        when=said.when,
        node=said.node,
        log=log,
    )
    if not log:
        return replace(begun, reason=said.reason or "not begun")
    if not (logs / log).is_file():
        return replace(begun, reason="its log is not there")
    run = read_log(logs / log)
    if isinstance(run, Unusable):
        return replace(begun, reason=run.reason)
    assert run.config is not None  # of a usable log
    return replace(
        begun,
        host="".join(run.hosts),
        step_seconds=run.seconds_per_step,
        samples_per_step=run.config.samples_per_step,
        facts=facts(run.config, run.host, run.end),
    )


def _allocation(path: Path) -> str:
    run = read_log(path)
    return "" if isinstance(run, Unusable) else run.allocation
