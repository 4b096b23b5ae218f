"""What servers and workers did by themselves: how late updates came, and each worker's own pace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
import pandas as pd

from bench.record import Run
from bench.study import stats
from plots.analyse.points import PointRow, by_point


def of_run(run: Run) -> dict[str, Any]:
    """What a usable log says of it; empty without servers."""
    config, servers = run.config, run.end.get("servers", ())
    if config is None or not any(server["updates"] for server in servers):
        return {}
    epochs = (event for event in run.events if event["event"] == "epoch")
    last = [list(of_one)[-1] for _, of_one in groupby(epochs, lambda event: event["training"])]
    return {
        "servers": len(servers),
        "staleness": _sum([server["staleness"] for server in servers]),
        "images_per_s": [config.samples_per_rank * len(s) / sum(s) for s in run.step_seconds()],
        "right": [
            np.divide(event["own_correct"], event["held_out"])
            for event in last
            if "own_correct" in event
        ],
    }


def summarise(runs: pd.DataFrame) -> Iterator[PointRow]:
    """Point by point; runs without servers are left out.

    `staleness` counts updates by how many others came between. `slowest` is of each run's slowest
    worker, in images/s by its own steps, `mean` of its workers; `least` and `right` are the shares
    of held-out samples that each training's worst worker and its workers had right.
    """
    for point, rows in by_point(runs):
        records = [one for one in rows["served"] if one]
        if not records:
            continue
        right = [shares for one in records for shares in one["right"]]
        staleness = tuple(_sum([one["staleness"] for one in records]))
        rates = [one["images_per_s"] for one in records]
        values = {
            "servers": records[0]["servers"],
            "staleness": staleness,
            "updates": sum(staleness),
            "mean_staleness": float(np.average(range(len(staleness)), weights=staleness)),
            "most_stale": len(staleness) - 1,
            "slowest": stats.arithmetic_mean([min(each) for each in rates]),
            "mean": stats.arithmetic_mean([float(np.mean(each)) for each in rates]),
            "least": stats.arithmetic_mean([float(min(s)) for s in right]) if right else None,
            "right": stats.arithmetic_mean([float(np.mean(s)) for s in right]) if right else None,
        }
        yield PointRow(point, values)


def _sum(rows: list[list[int]]) -> list[int]:
    """Column by column; shorter rows end in zeros."""
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]
