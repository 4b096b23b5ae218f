"""What the statistics keep, and which design of a study finds most: simulated studies.

python -m tests.simulation STUDY... --out FOLDER    coverage and wrong verdicts, with their noise
python -m tests.simulation designs STUDY            windows per launch inside a fixed time, as CSV

A simulated study is an array of log ratios of two arms, one per launch, around a true effect.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import lognorm, t

from bench.config import UsageError
from bench.record import Run, archive, read_run
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

# Designs of a study in turns
BUDGET_S = 420
WINDOWS = (5, 6, 10, 20)  # of each arm, per launch
LAUNCH_SDS = (0.003, 0.006, 0.01, 0.02, 0.04, 0.06)  # of the log ratio, that windows share
WINDOW_SD = 0.043  # of the log ratio of two windows of three steps, around their launch's


def main(argv: Sequence[str] | None = None) -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tests.simulation", description=__doc__, formatter_class=form)
    parser.add_argument("folders", type=Path, nargs="+", metavar="STUDY", help="a study's folder")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for two tables")
    parser.add_argument("--studies", type=int, default=20_000, help="simulated for each row")
    options = parser.parse_args(argv)
    try:
        if str(options.folders[0]) == "designs":
            rows = designs(options.folders[-1], options.studies)
            print(pd.DataFrame(rows).round(4).to_csv(index=False), end="")
        else:
            simulate(options.folders, options.out, options.studies)
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")


def simulate(folders: Sequence[Path], out: Path, studies: int) -> None:
    """Write coverage.csv and looks.csv, and print what is to be kept; the seed fixes all of it."""
    random = np.random.default_rng(SEED)
    sd, residuals = measured(folders)
    intervals = coverage(draw(random, (studies, max(LAUNCHES)), sd, residuals))
    stopped = looks(random, studies, (OF_TURNS, sd))
    out.mkdir(parents=True, exist_ok=True)
    intervals.to_csv(out / "coverage.csv", index=False)
    stopped.to_csv(out / "looks.csv", index=False)
    covered = intervals[intervals.noise.str.endswith("as measured")].coverage
    most = stats.ALPHA + 3 * math.sqrt(stats.ALPHA * (1 - stats.ALPHA) / studies)
    print(f"{studies:,} simulated studies a row, seed {SEED}, sd {100 * sd:.2f} %")
    for text, values, low, high in (
        ("95 % intervals that hold the truth, noise as measured", covered, 0.93, 0.97),
        ("wrong verdicts of studies that stop when settled", stopped.wrong, 0, most),
    ):
        met = "met   " if low <= min(values) and max(values) <= high else "missed"
        ends = f"{min(values):.2%} to {max(values):.2%}"
        print(f"{met} {text}: {ends}, to be {low:.2%} to {high:.2%}")


def measured(folders: Sequence[Path]) -> tuple[float, list[float]]:
    """Pool the noise of every comparison with enough launches: its sd, and residuals of sd 1.

    Residuals are over their study's sd. Six values over their own sd have short tails (kurtosis 2.1
    where the noise has 3), and simulated intervals would be called too narrow.
    """
    residuals, every = [], []
    for folder in folders:
        compared = json.loads((folder / "summary.json").read_text())["comparisons"]
        logs = [np.log(c["ratios"]) for c in compared if c["n"] >= stats.MIN_LAUNCHES]
        spread = stats.pooled_sd(logs) or math.inf
        residuals += [(x - x.mean()) * math.sqrt(len(x) / (len(x) - 1)) / spread for x in logs]
        every += logs
    if not (pooled := stats.pooled_sd(every)):
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

    def standard(noise: Any) -> Array:
        """Draw from a distribution of scipy's, moved to mean 0 and scaled to sd 1."""
        drawn = noise.rvs(size=shape, random_state=random)
        return np.asarray((drawn - noise.mean()) / noise.std())

    def both_arms(noise: Any) -> Array:
        return sd / math.sqrt(2) * (standard(noise) - standard(noise))

    heavy, skewed = both_arms(t(3)), lognorm(1)
    return {
        "normal, as measured": random.normal(0, sd, shape),
        "residuals, as measured": sd * random.choice(residuals, shape),
        "t with 3 degrees": heavy,
        "lognormal, both arms": both_arms(skewed),
        "1 launch in 4 with 5 x the noise": random.normal(0, sd, shape) * (1 + 4 * chance(0.25)),
        "1 run in 4 is 6 % slower": quiet + math.log(1.06) * (chance(0.25) - chance(0.25)),
        "stragglers in one arm alone": quiet + 0.03 * standard(skewed),
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


def costs(folder: Path) -> tuple[float, float]:
    """Return seconds of a study's launch outside its windows, and of a window of all its worlds."""
    launches: dict[int | None, list[Run]] = defaultdict(list)
    for run in map(read_run, archive.logs_in(folder / "runs")):
        if run.config is not None:
            launches[run.config.launch].append(run)
    inside, whole, windows = [], [], []
    for runs in launches.values():
        lead_ins = [np.max(lead, axis=0).sum() for run in runs for lead in run.steps("lead_in")]
        inside.append(sum(sum(run.window_seconds) for run in runs) + sum(lead_ins))
        whole.append(max(run.exit["wall_s"] for run in runs))
        windows += [len(run.windows) for run in runs]
    return float(np.mean(whole) - np.mean(inside)), float(np.mean(inside) / np.mean(windows))


def designs(folder: Path, studies: int) -> Iterator[dict[str, Any]]:
    """Simulate each design inside BUDGET_S, at the costs of a measured study in turns."""
    random, (start_s, window_s) = np.random.default_rng(SEED), costs(folder)
    for sd, windows in product(LAUNCH_SDS, WINDOWS):
        n = int(BUDGET_S / (start_s + windows * window_s))
        noise = random.normal(0, math.hypot(sd, WINDOW_SD / math.sqrt(windows)), (studies, n))
        estimates = [paired(study, swapped=True) for study in noise]
        means = np.log([estimate.ratio for estimate in estimates])
        halves = np.log([(e.interval() or (0, math.inf))[1] for e in estimates]) - means
        yield {
            "launch_sd": sd,
            "windows": windows,
            "launch_s": start_s + windows * window_s,
            "launches": n,
            "half_width": np.median(halves),
            **{f"finds_{x}_percent": np.mean(means + math.log1p(x / 100) > halves) for x in (3, 7)},
        }


if __name__ == "__main__":
    main()
