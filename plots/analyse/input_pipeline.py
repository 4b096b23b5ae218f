"""The input pipeline alone: images/s of runs that made batches and trained nothing, which no
training run is averaged with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability

_SHOWN = ("dataset=", "num_workers=")  # have columns of their own


@dataclass(frozen=True, kw_only=True)
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
    if runs.empty:
        return []
    told = comparability.variants(runs["cell"], runs["facts"])
    keyed = runs.assign(
        dataset=[facts["dataset"] for facts in runs["facts"]],
        num_workers=[facts["num_workers"] for facts in runs["facts"]],
    )
    keyed["variant"] = [tuple(w for w in words if not w.startswith(_SHOWN)) for words in told]
    grouped: Any = keyed.groupby(["dataset", "samples_per_rank", "num_workers", "variant"])
    return [
        Pipeline(
            dataset=dataset,
            samples_per_rank=int(batch),
            num_workers=workers,
            variant=variant,
            images_per_s=_images_per_s(rows),
            runs=len(rows),
        )
        for (dataset, batch, workers, variant), rows in grouped
    ]


def _images_per_s(rows: pd.DataFrame) -> Estimate:
    seconds = rows.groupby(["block", "allocation"], sort=False)["step_seconds_mean"].mean()
    return stats.geometric_mean((rows["samples_per_step"].iloc[0] / seconds).tolist())
