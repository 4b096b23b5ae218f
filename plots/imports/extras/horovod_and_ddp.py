"""Epoch lines of every rank, as the direct ancestor's two scripts print them.

`Rank : 3 Epoch 2: train set accuracy 0.60 time 12.38 throughput 1479 Sample Size 18315`; one of the
two scripts writes `Rank:`. World size and batch are not in the lines.
"""

from __future__ import annotations

from bench.config import UsageError
from plots.imports.observation import NUMBER, RANK_RATE, Format, ImportOptions, Reading, matched
from plots.imports.text import Log

_lines = matched(
    r"Rank ?: ?(?P<rank>\d+) Epoch (?P<epoch>\d+): "
    rf"train set accuracy (?P<train_accuracy>{NUMBER}) time (?P<epoch_seconds>{NUMBER}) "
    rf"throughput (?P<{RANK_RATE}>{NUMBER}) Sample Size (?P<samples>\d+)\b",
    marker="train set accuracy",
)
_OFF = 0.02  # relative: rates are cut to whole numbers, and times to hundredths


def _read(log: Log, options: ImportOptions) -> Reading:
    """A line's rate is its samples over its time: one that is not was written by two ranks."""
    reading = _lines(log, options)
    values = reading.values
    by_quantity = {
        name: rows.reset_index() for name, rows in values.groupby("quantity", sort=False)
    }
    if not by_quantity:
        return reading
    samples, seconds, rate = (
        by_quantity[name]["value"] for name in ("samples", "epoch_seconds", RANK_RATE)
    )
    for i in rate.index[~((rate * seconds / samples - 1).abs() <= _OFF)]:  # nan as well
        place = by_quantity[RANK_RATE].loc[i]
        stated = f"rank {place['rank']:g}, epoch {place['epoch']:g}: throughput {rate[i]:g}"
        follows = f"{samples[i]:g} samples in {seconds[i]:g} s"
        raise UsageError(f"{stated} does not follow from {follows}; mend the line, or take it out")
    return reading


FORMAT = Format(
    read=_read,
    written_by="RadhaGulhane13/data-parallelism-deep-learning",
    notes=(
        "per-rank rates are cut to whole numbers before they are added",
        "the first epoch holds the warm-up",
        "train accuracy is of another set in each of the two scripts",
    ),
)
