"""What servers and workers did by themselves: how late updates came, and each worker's own pace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
import pandas as pd

from bench.record import Run
from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse.points import Point, by_point


@dataclass(frozen=True, kw_only=True)
class Served:
    """All runs of one point that had servers."""

    point: Point
    servers: int
    staleness: tuple[int, ...]  # updates, by how many others came between
    slowest: Estimate  # images/s of each run's slowest worker, by its own steps
    mean: Estimate  # of its workers
    least: Estimate | None  # share of held-out samples that each training's worst worker had right
    right: Estimate | None  # that its workers had

    @property
    def updates(self) -> int:
        return sum(self.staleness)

    @property
    def mean_staleness(self) -> float:
        return float(np.average(range(len(self.staleness)), weights=self.staleness))

    @property
    def most_stale(self) -> int:
        return len(self.staleness) - 1


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


def summarise(runs: pd.DataFrame) -> Iterator[Served]:
    """Point by point; runs without servers are left out."""
    for point, rows in by_point(runs):
        records = [one for one in rows["served"] if one]
        if not records:
            continue
        right = [shares for one in records for shares in one["right"]]
        yield Served(
            point=point,
            servers=records[0]["servers"],
            staleness=tuple(_sum([one["staleness"] for one in records])),
            slowest=stats.arithmetic_mean([min(one["images_per_s"]) for one in records]),
            mean=stats.arithmetic_mean([float(np.mean(one["images_per_s"])) for one in records]),
            least=stats.arithmetic_mean([float(min(s)) for s in right]) if right else None,
            right=stats.arithmetic_mean([float(np.mean(s)) for s in right]) if right else None,
        )


def _sum(rows: list[list[int]]) -> list[int]:
    """Column by column; shorter rows end in zeros."""
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]
