"""Measured numbers for other programs: MLPerf's log lines, and Extra-P's text format."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.config import UsageError
from plots.analyse.points import Point
from plots.analyse.study import Analysis

_MS = 1000


def mllog(a: Analysis) -> str:
    """One line an event of every run, by time, in the form of mlperf_logging's mllog.

    Runs without a recorded start are left out. `tracked_stats` is MLPerf's key for throughput.
    """
    runs: Any = a.loaded.runs.to_dict("records")
    lines = [line for run in runs for line in _events(run)]
    ordered = sorted(lines, key=lambda event: event["time_ms"])
    return "".join(f":::MLLOG {json.dumps(event)}\n" for event in ordered)


def _events(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if math.isnan(run["began_s"]):
        return
    start = round(_MS * run["began_s"])
    seconds = run["wall_s"] if not math.isnan(run["wall_s"]) else 0.0
    end = start + round(_MS * seconds)
    facts = {
        "submission_benchmark": run["facts"].get("model", ""),
        "submission_platform": run["cell"],
        "global_batch_size": run["samples_per_step"],
        "seed": run["seed"],
        "number_of_ranks": run["world_size"],
    }
    yield _event("INTERVAL_START", "run_start", None, start, run)
    for key, value in facts.items():
        yield _event("POINT_IN_TIME", key, value, start, run)
    stats = {"throughput": run["images_per_s"], "unit": "images/s"}
    yield _event("POINT_IN_TIME", "tracked_stats", stats, end, run)
    yield _event("INTERVAL_END", "run_stop", None, end, run, status="success")


def _event(
    kind: str, key: str, value: Any, time_ms: int, run: dict[str, Any], **more: str
) -> dict[str, Any]:
    where = {"file": run["log"], "lineno": 1, **more}
    return {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": where,
    }


def extra_p(a: Analysis, curve: str) -> str:
    """Seconds of a step against ranks, a region for each cell, a value for each block.

    Extra-P's text format has the same points in every region, so a cell that lacks one is left out.
    """
    points: dict[str, dict[int, Point]] = defaultdict(dict)
    for p in a.table.on(curve):
        if p.cell != "single":
            points[_region(p)][p.world_size] = p
    worlds = sorted({world for region in points.values() for world in region})
    whole = {name: region for name, region in points.items() if sorted(region) == worlds}
    if not whole:
        raise UsageError(f"no cell has all points of the curve {curve}; choose another")
    lines = ["PARAMETER p", f"POINTS {' '.join(map(str, worlds))}", "METRIC step_seconds"]
    for name, region in sorted(whole.items()):
        lines.append(f"REGION {name}")
        for world in worlds:
            means = a.table.blocks[region[world]].values()
            lines.append(f"DATA {' '.join(repr(mean.step_seconds) for mean in means)}")
    return "\n".join(lines) + "\n"


def _region(point: Point) -> str:
    return "_".join([point.cell, point.settings, *point.variant]).replace(" ", "_")


def write(a: Analysis, form: str, curve: str, path: Path) -> Path:
    """One of the two formats."""
    path.write_text(mllog(a) if form == "mllog" else extra_p(a, curve))
    return path
