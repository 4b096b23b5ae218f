"""summary.json: everything a report prints, as plain unrounded values for other programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from plots.analyse.nodes import Calibrated
from plots.analyse.study import Analysis, machine, workload
from plots.report import tables
from plots.report.calibration_tables import CALIBRATIONS, DRIFT, NODES
from plots.report.columns import plain, records

SCHEMA = 1
_OF_THE_STUDY = {"name", "question", "site", "margin", "primary"}


def summary(a: Analysis, drawn: list[str]) -> dict[str, Any]:
    """Everything as plain values, unrounded; an estimate is value, low95, high95 and n (blocks)."""
    return {
        "schema": SCHEMA,
        "study": {
            **a.loaded.study.model_dump(include=_OF_THE_STUDY),
            "blocks": a.loaded.study.blocks or None,
            "blocks_planned": a.loaded.study.blocks or None,
            "blocks_usable": a.blocks,
        },
        "machine": machine(a.loaded.host),
        "workload": workload(a),
        "throughput": records(tables.THROUGHPUT, a.throughput),
        "scaling": records(tables.SCALING, a.efficiency),
        "comparisons": records((*tables.ratios(a), *tables.CHECKS), a.comparisons),
        "gains": records(tables.GAINS, a.gains),
        "not_compared": records(tables.NOT_COMPARED, a.not_compared),
        "gaps": records(tables.GAPS, a.gaps),
        "calibration": None if a.calibrated is None else _calibration(a.calibrated),
        "pipelines": records(tables.PIPELINES, a.pipelines),
        "step_times": records(tables.STEP_TIMES, a.step_times),
        "equal_parameters": [asdict(d) for d in a.digests],
        "varying": a.varying,
        "runs": _runs(a),
        "unusable": records(tables.LOGS, a.loaded.unusable),
        "superseded": records(tables.LOGS, a.loaded.superseded),
        "notes": list(a.loaded.notes),
        "figures": drawn,
    }


def _runs(a: Analysis) -> list[dict[str, Any]]:
    """One record for each usable run that trained."""
    frame = a.loaded.runs.drop(columns=["facts", "curves", "loader_only"]).astype(object)
    found: Any = frame.where(frame.notna(), None).to_dict("records")
    return list(found)


def _calibration(c: Calibrated) -> dict[str, Any]:
    return {
        "slow_nodes": c.slow,
        "nodes": records(NODES, c.nodes),
        "drift": plain(c.drift),
        "drift_warning": c.drifts,
        "jobs": records(DRIFT, c.jobs),
        "scaling": records(tables.SCALING, c.scaling),
        "no_scaling": records(tables.NOT_COMPARED, c.missing),
        "unusable": records(CALIBRATIONS, [one for one in c.all if not one.usable]),
    }
