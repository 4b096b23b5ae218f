"""What jobs left beside the runs: their calibrations, read as each job recorded them in
jobs/*.jsonl.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.record import allocation
from bench.study.jobs import JobEvent, read_events
from plots.analyse import comparability
from plots.analyse.nodes import WHEN, Calibration
from plots.read.runs import Unusable, read_log


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
    for said in read_events(path.read_bytes()):
        if said.event == "calibration" and said.when in WHEN:
            yield _calibration(path.stem, said, logs)


def _calibration(job: str, said: JobEvent, logs: Path) -> Calibration:
    place, when, node, log = allocation(said.job, said.restart), said.when, said.node, said.log
    if not log:
        return Calibration(job, place, when, node, reason=said.reason or "not begun")
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
