"""Epoch lines of every rank, as the direct ancestor's two scripts print them.

`Rank : 3 Epoch 2: train set accuracy 0.60 time 12.38 throughput 1479 Sample Size 18315`; one of the
two scripts writes `Rank:`. World size and batch are not in the lines.
"""

from __future__ import annotations

import re

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import NUMBER, Format, floats, long, wide

_EPOCH = re.compile(
    r"Rank ?: ?(?P<rank>\d+) Epoch (?P<epoch>\d+): "
    rf"train set accuracy (?P<train_accuracy>{NUMBER}) time (?P<epoch_seconds>{NUMBER}) "
    rf"throughput (?P<images_per_s>{NUMBER}) Sample Size (?P<samples>\d+)\b"
)
_OFF = 0.02  # relative: rates are cut to whole numbers, and times to hundredths


def _read(text: str) -> pd.DataFrame:
    """A line's rate is its samples over its time: one that is not was written by two ranks."""
    lines = wide(_EPOCH, text)
    samples, seconds, rate = (
        floats(lines[name]) for name in ("samples", "epoch_seconds", "images_per_s")
    )
    wrong = lines[~((rate * seconds / samples - 1).abs() <= _OFF)]  # nan as well
    if len(wrong):
        first = wrong.iloc[0]
        said = f"rank {first['rank']}, epoch {first['epoch']}: throughput {first['images_per_s']}"
        follows = f"{first['samples']} samples in {first['epoch_seconds']} s"
        raise UsageError(f"{said} does not follow from {follows}; mend the line, or take it out")
    return long(lines)


FORMAT = Format(
    read=_read,
    written_by="RadhaGulhane13/data-parallelism-deep-learning",
    of_a_rank=True,
    notes=(
        "per-rank rates are cut to whole numbers before they are added",
        "the first epoch holds the warm-up",
        "train accuracy is of another set in each of the two scripts",
    ),
)
