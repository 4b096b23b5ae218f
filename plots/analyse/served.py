"""What ranks that need not wait did by themselves: each one's own pace, and what it learnt."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from bench.backends.catalogue import facts
from bench.record import Run
from bench.study import stats
from plots.analyse.points import PointRow, by_point


def of_run(run: Run) -> dict[str, Any]:
    """Return what a usable log says of it; empty for a backend that has one mode."""
    config = run.config
    if config is None or config.exchange == "off":
        return {}
    if "mode" not in facts(config.backend).knobs.get(config.settings, ()):
        return {}
    epochs = (event for event in run.events if event["event"] == "epoch")
    last = [list(of_one)[-1] for _, of_one in groupby(epochs, lambda event: event["training"])]
    return {
        "images_per_s": [config.samples_per_rank * len(s) / sum(s) for s in run.step_seconds()],
        "right": [
            np.divide(event["own_correct"], event["held_out"])
            for event in last
            if "own_correct" in event
        ],
    }


def summarise(runs: pd.DataFrame) -> Iterator[PointRow]:
    """Yield a row for each point of a backend whose ranks need not wait.

    `slowest` is of each run's slowest rank, in images/s by its own steps, `mean` of its ranks;
    `least` and `right` are the shares of held-out samples that each training's worst rank and its
    ranks had right.
    """
    for point, rows in by_point(runs):
        records = [one for one in rows["served"] if one]
        if not records:
            continue
        right = [shares for one in records for shares in one["right"]]
        rates = [one["images_per_s"] for one in records]
        values = {
            "slowest": stats.arithmetic_mean([min(each) for each in rates]),
            "mean": stats.arithmetic_mean([float(np.mean(each)) for each in rates]),
            "least": stats.arithmetic_mean([float(min(s)) for s in right]) if right else None,
            "right": stats.arithmetic_mean([float(np.mean(s)) for s in right]) if right else None,
        }
        yield PointRow(point, values)
