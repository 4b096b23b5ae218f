"""What the statistics keep, and which design of a study finds most: simulated studies.

python -m tests.simulation STUDY... --out FOLDER    coverage and wrong verdicts, with their noise
python -m tests.simulation designs STUDY            windows per launch inside a fixed time, as CSV
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bench.config import UsageError
from bench.study.stats import ALPHA
from tests.simulation import studies as simulation
from tests.simulation.designs import launches_of, shipped, simulated


def main(argv: Sequence[str] | None = None) -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tests.simulation", description=__doc__, formatter_class=form)
    parser.add_argument("folders", type=Path, nargs="+", metavar="STUDY", help="a study's folder")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for two tables")
    parser.add_argument("--studies", type=int, default=20_000, help="simulated for each row")
    options = parser.parse_args(argv)
    try:
        if str(options.folders[0]) == "designs":
            launches = launches_of(options.folders[-1])
            for rows in (simulated(launches, options.studies), shipped(launches)):
                print(pd.DataFrame(rows).round(4).to_csv(index=False))
        else:
            simulate(options.folders, options.out, options.studies)
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")


def simulate(folders: Sequence[Path], out: Path, studies: int) -> None:
    """Write coverage.csv and looks.csv, and print what is to be kept; the seed fixes all of it."""
    random = np.random.default_rng(simulation.SEED)
    sd, residuals = simulation.measured(folders)
    shape = studies, max(simulation.LAUNCHES)
    coverage = simulation.coverage(simulation.draw(random, shape, sd, residuals))
    looks = simulation.looks(random, studies, (simulation.OF_TURNS, sd))
    out.mkdir(parents=True, exist_ok=True)
    coverage.to_csv(out / "coverage.csv", index=False)
    looks.to_csv(out / "looks.csv", index=False)
    covered = coverage[coverage.noise.str.endswith("as measured")].coverage
    most = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / studies)
    print(f"{studies:,} simulated studies a row, seed {simulation.SEED}, sd {100 * sd:.2f} %")
    for text, values, low, high in (
        ("95 % intervals that hold the truth, noise as measured", covered, 0.93, 0.97),
        ("wrong verdicts of studies that stop when settled", looks.wrong, 0, most),
    ):
        met = "met   " if low <= min(values) and max(values) <= high else "missed"
        ends = f"{min(values):.2%} to {max(values):.2%}"
        print(f"{met} {text}: {ends}, to be {low:.2%} to {high:.2%}")


if __name__ == "__main__":
    main()
