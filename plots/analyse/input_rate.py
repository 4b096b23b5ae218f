"""Images/s that the input alone reaches, beside those of the training that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from plots.analyse.runs import Loaded

_FULL = 0.9  # of what input alone reaches: from there on training may wait for it
_BY = ["dataset", "samples_per_rank", "world_size", "num_workers"]


@dataclass(frozen=True)
class InputRate:
    """Medians over runs, of the fastest cell where training has several."""

    samples_per_rank: int
    world_size: int
    num_workers: str
    alone: float
    trained: float

    @property
    def limits(self) -> bool:
        return self.trained > _FULL * self.alone


def input_rates(loaded: Loaded) -> Iterator[InputRate]:
    """Where runs with `loader_only` make the batches of runs that train; not of emulated ones."""
    runs, alone = loaded.runs[~loaded.runs["emulated"].astype(bool)], loaded.pipelines
    if runs.empty or alone.empty:
        return
    # a batch that stays on the device is none that anybody waits for
    runs = runs[[facts.get("preprocessing") != "resident" for facts in runs["facts"]]]
    fastest = _rates(runs, "cell").groupby(_BY).max()
    both = _rates(alone).to_frame("alone").join(fastest.rename("trained"), how="inner")
    for row in both.reset_index().to_dict("records"):
        yield InputRate(**{str(name): value for name, value in row.items() if name != "dataset"})


def _rates(runs: pd.DataFrame, *more: str) -> pd.Series:
    workers = [facts["num_workers"] for facts in runs["facts"]]
    return runs.assign(num_workers=workers).groupby([*_BY, *more])["images_per_s"].median()
