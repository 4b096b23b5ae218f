"""The calibrations of a study's jobs, as each job recorded them in jobs/*.jsonl."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.record import allocation, archive
from bench.study.jobs import JobEvent, read_events
from plots.read.runs import Unusable, read_log

WHEN = ("start", "end")  # of a job, its rounds
Facts = Mapping[str, str]
_Table = Mapping[str, Any]
FactsOf = Callable[[RunConfig, _Table, _Table, _Table], Facts]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """One plain process on one node or GPU; `reason` says why it gives no number, '' if it does."""

    job: str = ""
    allocation: str = ""
    when: str = ""
    node: str = ""  # as the scheduler names it; '' where a whole round is missing
    host: str = ""  # as it names itself, by which runs know it
    gpu: int | None = None  # on the node; None where a process had none
    log: str = ""
    reason: str = ""
    step_seconds: float = math.nan
    samples_per_step: int = 0
    facts: Facts = field(default_factory=dict)

    @property
    def images_per_s(self) -> float:
        return self.samples_per_step / self.step_seconds

    @property
    def unit(self) -> str:
        """What was calibrated: 'node7', or 'node7 GPU 2'."""
        return self.node if self.gpu is None else f"{self.node} GPU {self.gpu}"

    @property
    def usable(self) -> bool:
        return not self.reason


def read(folder: Path, facts: FactsOf) -> list[Calibration] | None:
    """Every calibration that a job of FOLDER recorded, and every log of one that none did.

    None without jobs. `facts` makes of a usable one what it may be compared by.
    """
    jobs, logs = archive.logs_in(folder / "jobs"), archive.logs_in(folder / "calibration")
    if not jobs and not (folder / "jobs").is_dir():
        return None
    by_name = {path.name: path for path in logs}
    calibrations = [
        _calibration(path.stem, entry, by_name, facts)
        for path in jobs
        for entry in read_events(archive.read_file(path))
        if entry.event == "calibration" and entry.when in WHEN
    ]
    recorded = {c.log for c in calibrations}
    for path in logs:
        if path.name not in recorded:
            run, reason = read_log(path), "its job did not live to record it"
            place = "" if isinstance(run, Unusable) else run.allocation
            calibrations.append(Calibration(allocation=place, log=path.name, reason=reason))
    return calibrations


def _calibration(
    job: str, entry: JobEvent, logs: Mapping[str, Path], facts: FactsOf
) -> Calibration:
    place, log = allocation(entry.job, entry.restart), entry.log
    begun = Calibration(job=job, allocation=place, when=entry.when, node=entry.node, log=log)
    if not log:
        return replace(begun, reason=entry.reason or "not begun")
    if log not in logs:
        return replace(begun, reason="its log is not there")
    run = read_log(logs[log])
    if isinstance(run, Unusable):
        return replace(begun, reason=run.reason)
    assert run.config is not None  # of a usable log
    return replace(
        begun,
        host="".join(run.hosts),
        gpu=next((r.get("local_rank") for r in run.host.get("ranks", ()) if "gpu" in r), None),
        step_seconds=run.seconds_per_step,
        samples_per_step=run.config.samples_per_step,
        facts=facts(run.config, run.host, run.end, run.workload),
    )
