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
    """Mark the rates that make a curve: not the spread of runs whose mean stands beside it."""
    spread = points["reducer"].astype(str).str.contains(_SPREAD)
    return (points["quantity"] == "images_per_s") & ~spread


def scaled(points: pd.DataFrame) -> pd.DataFrame:
    """Give points of images_per_s their curve and efficiencies; missing where no baseline is.

    `own`: over as many times the backend's own one rank; `common`: over `single` of one source. A
    batch per rank makes a point of weak scaling, a global batch one of strong scaling.
    """
    rates = points[is_curve(points)].copy()
    strong = rates["global_batch"].notna()
    rates["curve"] = strong.map({True: "strong", False: "weak"})
    rates["batch"] = rates["global_batch"].where(strong, rates["batch_per_rank"])
    place = [*KEYS, "batch", "world_size"]
    if (twice := rates.duplicated(place)).any():  # their mean would be nobody's
        row = rates[twice].iloc[0]
        raise UsageError(
            f"{row['source']}: {row['backend']} at {row['world_size']:.0f} ranks has two rates; "
            "name each with a --source, or import their logs together"
        )
    one_rank = rates[rates["world_size"] == 1]
    baselines = {
        "own": (one_rank, [*KEYS, "batch"]),
        "common": (one_rank[one_rank["backend"] == "single"], ["source", "batch"]),
    }
    for name, (rows, keys) in baselines.items():
        baseline = rows[[*keys, "value"]].rename(columns={"value": "baseline"})
        joined = rates[keys].merge(baseline, how="left", on=keys)["baseline"].to_numpy()
        rates[f"{name}_efficiency"] = rates["value"] / (rates["world_size"] * joined)
    return rates.sort_values(place, ignore_index=True)
