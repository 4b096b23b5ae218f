"""Single steps: what warm-up looks like over all runs of a point, and how timed steps spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from plots.analyse.points import Point, by_point

_MOST_STEPS = 2000  # of a sequence: a figure is no wider


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """Seconds of the job, step by step, of all runs of one point."""

    point: Point
    runs: int
    warmup_steps: int
    low: np.ndarray  # [step]: tenth percentile over runs
    median: np.ndarray  # [step], warm-up first
    high: np.ndarray  # [step]: ninetieth percentile
    timed: np.ndarray  # [runs x timed steps], sorted


def at_largest(runs: pd.DataFrame) -> Iterator[StepSeconds]:
    """Points at the most ranks of their series; runs of unequal length are cut to the shortest."""
    groups = list(by_point(runs))
    most: dict[object, int] = {}
    for point, _ in groups:
        most[point.variant] = max(most.get(point.variant, 0), point.world_size)
    for point, rows in groups:
        if point.world_size < most[point.variant] or point.cell == "single":
            continue
        sequences = rows["sequence"].tolist()
        steps = min(_MOST_STEPS, *map(len, sequences))
        table = np.vstack([one[:steps] for one in sequences])
        low, median, high = np.percentile(table, (10, 50, 90), axis=0)
        warmup = int(rows["warmup_steps"].min())
        timed = [one[warm:] for one, warm in zip(sequences, rows["warmup_steps"], strict=True)]
        yield StepSeconds(
            point=point,
            runs=len(rows),
            warmup_steps=warmup,
            low=low,
            median=median,
            high=high,
            timed=np.sort(np.concatenate(timed)),
        )
