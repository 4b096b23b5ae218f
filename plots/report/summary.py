"""summary.json: everything a report prints, as plain unrounded values for other programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.study.stats import Estimate
from plots.analyse import comparison
from plots.analyse.nodes import Calibrated
from plots.analyse.points import NotCompared, Point
from plots.analyse.scaling import Scaled
from plots.analyse.study import Analysis, machine, workload

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
        "throughput": [
            {
                "curve": t.curve,
                **_point(t.point),
                "runs": t.runs,
                "images_per_s": _estimate(t.images_per_s),
            }
            | {
                "step_seconds": _estimate(t.step_seconds),
                "input_share": t.input_share,
                "flags": list(t.flags),
            }
            for t in a.throughput
        ],
        "scaling": [_scaled(s) for s in a.efficiency],
        "comparisons": [_compared(c, a) for c in a.comparisons],
        "gains": [
            {**_point(g.point), "baseline_variant": g.baseline.variant, "ratio": _estimate(g.ratio)}
            for g in a.gains
        ],
        "not_compared": [_not_compared(n) for n in a.not_compared],
        "gaps": [
            {
                "curve": g.curve,
                **_point(g.point),
                "blocks_planned": g.planned,
                "blocks_missing": list(g.missing),
            }
            for g in a.gaps
        ],
        "calibration": None if a.calibrated is None else _calibration(a.calibrated),
        "pipelines": [
            {**asdict(p), "images_per_s": _estimate(p.images_per_s)} for p in a.pipelines
        ],
        "step_times": [
            {**_point(s.point), "runs": s.runs, "steps_per_run": s.steps_per_run}
            | {
                k: _estimate(getattr(s, k))
                for k in ("median_seconds", "p95_seconds", "p99_seconds")
            }
            | {"outlier_steps": s.outlier_steps, "not_steady_runs": s.not_steady_runs}
            for s in a.step_times
        ],
        "equal_parameters": [asdict(d) for d in a.digests],
        "varying": a.varying,
        "runs": a.loaded.runs.drop(columns=["facts", "curves", "loader_only"])
        .astype(object)
        .where(lambda f: f.notna(), None)
        .to_dict("records"),
        "unusable": [asdict(u) for u in a.loaded.unusable],
        "superseded": [asdict(u) for u in a.loaded.superseded],
        "notes": list(a.loaded.notes),
        "figures": drawn,
    }


def _not_compared(n: NotCompared) -> dict[str, str]:
    return {"what": n.what, "reason": n.reason}


def _point(p: Point) -> dict[str, Any]:
    return {**p._asdict(), "samples_per_step": p.samples_per_step}


def _estimate(e: Estimate) -> dict[str, Any]:
    return {"value": e.value, "low95": e.low, "high95": e.high, "n": e.n}


def _scaled(s: Scaled) -> dict[str, Any]:
    return {
        "curve": s.curve,
        **_point(s.point),
        "baseline_kind": s.kind,
        "baseline": _point(s.baseline),
        "baseline_images_per_s": _estimate(s.baseline_images_per_s),
        "efficiency": _estimate(s.efficiency),
        "speedup": _estimate(s.speedup),
        "step_overhead_seconds": s.step_overhead_seconds,
        "paired_by_block": s.paired,
        "flags": list(s.flags),
    }


def _calibration(c: Calibrated) -> dict[str, Any]:
    return {
        "slow_nodes": c.slow,
        "nodes": [asdict(n) for n in c.nodes],
        "drift": None if c.drift is None else _estimate(c.drift),
        "drift_warning": c.drifts,
        "jobs": [asdict(d) for d in c.jobs],
        "scaling": [_scaled(s) for s in c.scaling],
        "no_scaling": [_not_compared(n) for n in c.missing],
        "unusable": [
            {k: getattr(one, k) for k in ("job", "allocation", "when", "node", "log", "reason")}
            for one in c.all
            if one.reason
        ],
    }


def _compared(c: comparison.Comparison, a: Analysis) -> dict[str, Any]:
    where = {
        k: getattr(c, k)
        for k in (
            "transport",
            "settings",
            "variant",
            "world_size",
            "samples_per_rank",
            "samples_per_step",
        )
    }
    return {
        **where,
        "curves": list(c.curves),
        "ratio": "images/s of Horovod over images/s of DDP",
        **asdict(c.paired),
        "half_width_ratio": c.half_width,
        "margin": a.loaded.study.margin,
        "verdict": c.verdict,
        "verdict_text": comparison.sentence(c, a.loaded.study.margin, a.tests),
        "unequal_environments": list(c.unequal),
        "primary": c.primary,
        "holm_p": c.holm_p,
        "blocks_to_settle": c.blocks_to_settle,
        "blocks_for_2_percent": c.blocks_for_visible_effect,
    }
