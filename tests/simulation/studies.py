"""The noise of measured studies and of other kinds, and the verdicts on studies drawn from it.

A study is an array of log ratios of two arms, one per launch, around a true effect.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

from bench.config import UsageError
from bench.study import stats
from bench.study.looks import schedule
from bench.study.stats import nominal_level

Array = NDArray[np.float64]

SEED = 20261122
LAUNCHES = (6, 8, 12)
LOOKS = schedule(6, 20)
OF_TURNS = 0.019  # sd of the log ratio of launches in which both sides took turns
MARGIN = 0.02
EFFECTS = (0.0, 0.5, 1.0, 2.5)  # true ones, in margins


def measured(folders: Sequence[Path]) -> tuple[float, list[float]]:
    """Pool the noise of every comparison with enough launches: its sd, and residuals of sd 1.

    Residuals are over their study's sd. Six values over their own sd have short tails (kurtosis 2.1
    where the noise has 3), and simulated intervals would be called too narrow.
    """
    residuals, every = [], []
    for folder in folders:
        compared = json.loads((folder / "summary.json").read_text())["comparisons"]
        ratios = [c["ratios"] for c in compared if c["n"] >= stats.MIN_LAUNCHES]
        logs = [np.log(np.array(values, float)) for values in ratios]
        spread = stats.pooled_sd(x.tolist() for x in logs) or math.inf
        residuals += [(x - x.mean()) * math.sqrt(len(x) / (len(x) - 1)) / spread for x in logs]
        every += logs
    if not (pooled := stats.pooled_sd(x.tolist() for x in every)):
        names = ", ".join(map(str, folders))
        least = stats.MIN_LAUNCHES
        raise UsageError(f"{names}: no comparison of {least} launches; name studies that have one")
    return pooled, np.concatenate(residuals).tolist()


def draw(
    random: Generator, shape: tuple[int, int], sd: float, residuals: Sequence[float]
) -> dict[str, Array]:
    """Draw log ratios [study, launch] of no effect from each noise; the first two are measured."""
    quiet = random.normal(0, 0.005 * math.sqrt(2), shape)

    def chance(share: float) -> Array:
        return (random.random(shape) < share).astype(float)

    def skewed() -> Array:
        """Draw lognormal numbers (sigma 1), moved to mean 0 and scaled to standard deviation 1."""
        drawn = random.lognormal(0, 1, shape) - math.exp(0.5)
        return np.asarray(drawn / math.sqrt((math.e - 1) * math.e))

    def both(arm: Array, other: Array) -> Array:
        return sd / math.sqrt(2) * (arm - other)

    heavy = [random.standard_t(3, shape) / math.sqrt(3) for _ in range(2)]
    return {
        "normal, as measured": random.normal(0, sd, shape),
        "residuals, as measured": sd * random.choice(residuals, shape),
        "t with 3 degrees": both(*heavy),
        "lognormal, both arms": both(skewed(), skewed()),
        "1 launch in 4 with 5 x the noise": random.normal(0, sd, shape) * (1 + 4 * chance(0.25)),
        "1 run in 4 is 6 % slower": quiet + math.log(1.06) * (chance(0.25) - chance(0.25)),
        "stragglers in one arm alone": quiet + 0.03 * skewed(),
        "1 run in 8 of one arm is 15 % slower": quiet + math.log(1.15) * (chance(0.125) - 0.125),
    }


def paired(logs: Array, swapped: bool = False) -> stats.Paired:
    """Estimate the ratio of a study as reports do; `swapped`: who is first alternates."""
    first = [bool(i % 2) for i in range(len(logs))] if swapped else []
    ones = [1.0] * len(logs)
    return stats.paired_ratio(numerator=np.exp(logs).tolist(), denominator=ones, first=first)


def coverage(drawn: dict[str, Array]) -> pd.DataFrame:
    """Count how often the 95 % interval holds the truth, by noise and number of launches."""

    def holds(logs: Array) -> bool:
        low, high = paired(logs).interval() or (0.0, 0.0)
        return low <= 1 <= high

    rows = [
        (noise, n, float(np.mean([holds(study[:n]) for study in studies])))
        for (noise, studies), n in product(drawn.items(), LAUNCHES)
    ]
    return pd.DataFrame(rows, columns=["noise", "launches", "coverage"])


def look(logs: Array, margins: float, level: float) -> tuple[int, bool]:
    """Follow a study to the look that settles it: launches, one more than all if none did, and
    whether its verdict is wrong of a true effect in margins."""
    for n in LOOKS:
        low, high = paired(logs[:n], swapped=True).interval(level) or (0.0, math.inf)
        match stats.decide((low, high), MARGIN):
            case "equal":
                return n, margins >= 1
            case "faster":
                return n, high < 1 or margins == 0
    return max(LOOKS) + 1, False


def looks(random: Generator, studies: int, sds: Sequence[float]) -> pd.DataFrame:
    """Count wrong verdicts of studies that stop when settled, and the launches they take."""

    def rows() -> Iterator[dict[str, float]]:
        level, last = nominal_level(LOOKS), max(LOOKS)
        for sd, margins in product(sds, EFFECTS):
            effect = margins * math.log1p(MARGIN)
            drawn = effect + random.normal(0, sd, (studies, last))
            ends, wrong = np.transpose([look(study, margins, level) for study in drawn])
            yield {"sd": sd, "effect": math.expm1(effect), "wrong": float(np.mean(wrong))} | {
                "launches": float(np.mean(np.minimum(ends, last))),
                **{f"settled_by_{n}": float(np.mean(ends <= n)) for n in LOOKS},
            }

    return pd.DataFrame(rows())
