"""The input pipeline alone: images/s of runs that made batches and trained nothing, which no
training run is averaged with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability
from plots.analyse.blocks import Block


@dataclass(frozen=True)
class Pipeline:
    """Images/s of one configuration of the input pipeline over blocks; `variant` is what tells it
    from the others.
    """

    dataset: str
    samples_per_rank: int
    num_workers: str
    variant: tuple[str, ...]
    images_per_s: Estimate
    runs: int


def measure(runs: pd.DataFrame) -> list[Pipeline]:
    """One row per configuration, averaged as training runs are: on time inside a block, then over
    blocks on logs.
    """
    rows: list[dict[Any, Any]] = runs.to_dict("records")
    shown = ("dataset=", "num_workers=")
    groups: dict[tuple[Any, ...], list[dict[Any, Any]]] = {}
    for row, variant in zip(rows, comparability.variants(rows), strict=True):
        facts, other = row["facts"], tuple(word for word in variant if not word.startswith(shown))
        groups.setdefault(
            (facts["dataset"], row["samples_per_rank"], facts["num_workers"], other), []
        ).append(row)
    return [
        Pipeline(dataset, batch, workers, other, _images_per_s(group), len(group))
        for (dataset, batch, workers, other), group in sorted(groups.items())
    ]


def _images_per_s(rows: list[dict[Any, Any]]) -> Estimate:
    blocks: dict[Block, list[float]] = {}
    for row in rows:
        blocks.setdefault(Block(row["block"], row["allocation"]), []).append(
            row["step_seconds_mean"]
        )
    return stats.geometric_mean(
        [rows[0]["samples_per_step"] / float(np.mean(seconds)) for seconds in blocks.values()]
    )
