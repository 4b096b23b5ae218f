"""Efficiency of imported points, against both baselines: the same data tell two stories."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bench.config import UsageError
from bench.study.stats import Estimate

KEYS = ("source", "curve", "backend")
_SPREAD = r"\b(?:median|min|max) over runs"  # beside the mean of the same runs


@dataclass(frozen=True)
class CurveRow:
    """One point of a curve; `measured` here, else imported, and then without an interval."""

    source: str
    curve: str
    backend: str
    world_size: int
    batch: float
    images_per_s: Estimate
    own_efficiency: Estimate | None
    common_efficiency: Estimate | None
    how: str
    measured: bool


def is_curve(points: pd.DataFrame) -> pd.Series[bool]:
    """Rates of which a curve is made: not the spread of runs whose mean stands beside it."""
    spread = points["reducer"].astype(str).str.contains(_SPREAD)
    return (points["quantity"] == "images_per_s") & ~spread


def scaled(points: pd.DataFrame) -> pd.DataFrame:
    """Points of images_per_s with their curve and efficiencies; missing where no baseline is.

    `own`: over as many times the backend's own one rank; `common`: over `single` of one source. A
    batch per rank makes a point of weak scaling, a global batch one of strong scaling.
    """
    rates = points[is_curve(points)].copy()
    strong = rates["global_batch"].notna()
    rates["curve"] = strong.map({True: "strong", False: "weak"})
    rates["batch"] = rates["global_batch"].where(strong, rates["batch_per_rank"])
    _require_one(rates)
    one_rank = rates[rates["world_size"] == 1]
    own_baseline = _baseline(one_rank, [*KEYS, "batch"], "own_images_per_s")
    plain = one_rank[one_rank["backend"] == "single"]
    common_baseline = _baseline(plain, ["source", "batch"], "common_images_per_s")
    joined = rates.merge(own_baseline, how="left", on=[*KEYS, "batch"])
    joined = joined.merge(common_baseline, how="left", on=["source", "batch"])
    for name in ("own", "common"):
        ideal = joined["world_size"] * joined[f"{name}_images_per_s"]
        joined[f"{name}_efficiency"] = joined["value"] / ideal
    order = [*KEYS, "batch", "world_size"]
    return joined.sort_values(order, ignore_index=True)


def _require_one(rates: pd.DataFrame) -> None:
    """Raise UsageError where a point has two rates: their mean would be nobody's."""
    place = [*KEYS, "batch", "world_size"]
    if (twice := rates.duplicated(place)).any():
        row = rates[twice].iloc[0]
        raise UsageError(
            f"{row['source']}: {row['backend']} at {row['world_size']:.0f} ranks has two rates; "
            "name each with a --source, or import their logs together"
        )


def _baseline(rows: pd.DataFrame, keys: list[str], name: str) -> pd.DataFrame:
    return rows[[*keys, "value"]].rename(columns={"value": name})
