"""What the statistics keep: studies of known truth, drawn with the noise of measured ones.

python -m tests.simulation results/local results/handwritten --out results/simulation
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from bench.config import UsageError
from bench.study.disk import write_whole
from bench.study.frames import load
from bench.study.stats import MIN_LAUNCHES
from plots.analyse.study import analyse
from tests.simulation.noise import measured
from tests.simulation.studies import simulate

TABLES = ("coverage", "looks")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("studies", type=Path, nargs="+", metavar="STUDY", help="a study's folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    asked = parser.parse_args(words)
    try:
        print("\n".join(make(asked.studies, asked.out)))
    except UsageError as error:
        sys.exit(f"error: {error}")


def make(folders: Sequence[Path], out: Path) -> list[str]:
    """Write simulation.json and a CSV for each table into `out`; returns the bars.

    Raises UsageError where no comparison of the folders has launches enough for a verdict.
    """
    studies = [analyse(loaded) for folder in folders if not (loaded := load(folder)).runs.empty]
    if not any(c.paired.n >= MIN_LAUNCHES for a in studies for c in a.comparisons):
        named = ", ".join(map(str, folders))
        raise UsageError(
            f"{named}: no comparison of {MIN_LAUNCHES} launches; name studies that have"
        )
    found = simulate(measured(studies))
    out.mkdir(parents=True, exist_ok=True)
    written = asdict(found)
    head = {"simulated": True, "noise_of": [a.loaded.study.name for a in studies]}
    write_whole(out / "simulation.json", json.dumps({**head, **written}, indent=1) + "\n")
    for name in TABLES:
        frame = pd.DataFrame(written[name])
        write_whole(out / f"{name}.csv", frame.to_csv(index=False))
    said = [f"{'met   ' if bar.met else 'missed'} {bar.what}: {bar.found}" for bar in found.bars]
    return [f"{found.studies:,} simulated studies a row, seed {found.seed}", *said]


if __name__ == "__main__":
    main()
