"""Horovod's synthetic benchmarks: `Iter #3: 103.1 img/sec per GPU`, and means with a spread."""

from __future__ import annotations

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import (
    NUMBER,
    RANK_RATE,
    RATE,
    Format,
    ImportOptions,
    Reading,
    matched,
    stating,
)
from plots.imports.text import Log

_PLACES = {
    "world_size": r"(?:Number of \w+s: |Total img/sec on )(\d+)\b",
    "batch_per_rank": r"Batch size: (\d+)\b",
    "model": r"\bModel: (\S+)",
}
_lines = stating(
    matched(
        rf"Iter #(?P<step>\d+): (?P<{RANK_RATE}>{NUMBER}) img/sec per \S+",
        rf"Img/sec per \S+: (?P<rank_mean_{RATE}>{NUMBER}) "
        rf"\+-(?P<rank_spread_{RATE}>{NUMBER})(?!\w)",
        rf"Total img/sec on \d+ \S+\(s\): (?P<total_{RATE}>{NUMBER}) "
        rf"\+-(?P<total_spread_{RATE}>{NUMBER})(?!\w)",
        marker=r"(?i)\bimg/sec\b",
    ),
    **_PLACES,
)
_ROUNDED = 0.051  # each is written with one decimal, and so is what it is made of


def _read(log: Log, options: ImportOptions) -> Reading:
    """The script's own mean says whether Iter #0 counts: for Keras it is warm-up."""
    reading = _lines(log, options)
    values, warnings = reading.values, list(reading.warnings)
    rates = values[values["quantity"] == RANK_RATE]
    mean, total = (_one(values, f"{name}_{RATE}") for name in ("rank_mean", "total"))
    world = values["world_size"].max()
    if mean is None and total is not None and world > 0:
        mean = total / world
    elif (
        mean is not None
        and total is not None
        and not abs(total - world * mean) <= _ROUNDED * (world + 1)
    ):
        raise UsageError(f"its total is {total:g}, and {world:g} times its mean {mean:g}")
    if rates.empty:
        return Reading(_whole(values, mean, total), warnings)
    tells = rates.drop_duplicates()  # a restart may have repeated a line
    later = tells[tells["step"] > 0]["value"].mean()
    if mean is None:
        values = _warmed_up(values)
        warnings.append("it states no mean, so Iter #0 is left out: Keras' script warms up in it")
    elif abs(tells["value"].mean() - mean) > 2 * _ROUNDED:
        if not abs(later - mean) <= 2 * _ROUNDED:
            whole = tells["value"].mean()
            raise UsageError(
                f"its lines have the mean {whole:.1f}, and without Iter #0 {later:.1f}; it states "
                f"{mean:g}: lines are missing or of another run"
            )
        values = _warmed_up(values)
        warnings.append("Iter #0 is warm-up: the script's own mean leaves it out")
    return Reading(values, warnings)


def _warmed_up(values: pd.DataFrame) -> pd.DataFrame:
    """Iter #0 under a name of its own."""
    first = (values["quantity"] == RANK_RATE) & ~(values["step"] > 0)
    return values.assign(quantity=values["quantity"].mask(first, f"rank_warm_up_{RATE}"))


def _one(values: pd.DataFrame, quantity: str) -> float | None:
    stated = sorted(values[values["quantity"] == quantity]["value"].unique())
    if len(stated) > 1:
        raise UsageError(f"{quantity} is {stated[0]:g} and {stated[1]:g}; part its runs")
    return float(stated[0]) if stated else None


def _whole(values: pd.DataFrame, mean: float | None, total: float | None) -> pd.DataFrame:
    """With the script's own total where its single lines are not there, or its mean."""
    if values.empty or mean is None:
        return values
    quantity, rate = (RATE, total) if total else (RANK_RATE, mean)
    stated = values.iloc[:1].assign(quantity=quantity, value=rate)
    return pd.concat([values, stated], ignore_index=True)


FORMAT = Format(
    read=_read,
    written_by="horovod, examples/*_synthetic_benchmark.py",
    a_file_is_a_run=True,
    one_speaks=True,
    notes=("'+-' is 1.96 standard deviations of its windows: a spread, no interval of the mean",),
)
