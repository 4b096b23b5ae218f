"""Many short studies of the instrument itself, really run: equal arms, then a known slowdown.

python -m tests.repeats --results results/mine/repeats: `aa` again and again, each with a seed of
its own and shorter runs, until it is settled, then with a sleep of three half-widths of those in
one arm. Counts the verdicts, every study's; the same command goes on where it was stopped. Wants a
quiet machine for two hours. With --count it runs nothing and derives the table from the logs again.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from bench.study.stats import geometric_mean
from plots.report.write import analysed

ROOT = Path(__file__).parents[1]
KINDS = ("aa", "injected")
TABLE = "repeats.csv"
TIMES = 3  # half-widths that are injected
SHORTER = {"model": "resnet18", "warmup_steps": 12, "windows": 10}  # of a run: 42 steps of 75
LOOKS = {"blocks": 6, "max_blocks": 12}
# what is injected must be more than the margin: inside it, "equal" is right
MARGIN = {"aa": 0.05, "injected": 0.02}
ATTEMPTS = 3  # at the runs of a study that failed
MOST_FALSE = 0.05  # of the studies of equal arms: 1 of 20; of the others all are found


@dataclass(frozen=True)
class Told:
    """What one study's report says of its one comparison."""

    study: str
    verdict: str
    ratio: float  # of images/s, the second arm's over the first's
    low: float  # of the interval that decides
    high: float
    half_width: float  # relative
    step_ms: float  # of the first arm
    inject_ms: float
    seed: int  # of the first block

    @property
    def called(self) -> bool:
        return self.verdict == "faster"

    @property
    def slower(self) -> bool:
        """Whether the interval that decides holds nothing but a slowdown of the second arm."""
        return self.high < 1


def study(kind: str, index: int, results: Path, inject_ms: float) -> Path:
    """A study file like the shipped one, of shorter runs, with a name and a seed of its own."""
    text = tomlkit.parse((ROOT / "slurm/studies/aa.toml").read_text())
    text["name"], text["seed"] = f"{kind}-{index:02d}", 1000 * index
    text.update(LOOKS | {"margin": MARGIN[kind]})
    text["run"].update(SHORTER)
    text["expected_run_s"] = 10
    if inject_ms:
        text["arms"] = {"again": {"inject_ms": inject_ms}}
    path = results / "studies" / f"{kind}-{index:02d}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(text))
    return path


def run(path: Path, results: Path, blocks: Sequence[str]) -> Told:
    """Run what is missing of a study; earlier attempts are kept beside it."""
    words = [
        "slurm",
        "run",
        str(path),
        "--results",
        str(results),
        *blocks,
    ]
    folder = results / path.stem
    if not any(_does(words) for _ in range(ATTEMPTS)):
        sys.exit(f"{folder}: not all runs are ok; see above, then go on with this command")
    return told(folder)


def _does(words: Sequence[str]) -> bool:
    return subprocess.run([sys.executable, "-m", *words]).returncode == 0


def told(folder: Path) -> Told:
    """The answer that the logs in a study's folder give."""
    found = analysed(folder)
    study = found.loaded.study
    (compared,) = found.comparisons
    (first,) = [row for row in found.throughput if row.point.cell == compared.reference]
    low, high = compared.paired.interval(compared.level) or (math.nan, math.nan)
    return Told(
        study=study.name,
        verdict=compared.verdict,
        ratio=compared.paired.ratio,
        low=low,
        high=high,
        half_width=_half_width(compared.paired.ratios),
        step_ms=1000 * first.step_seconds.value,
        inject_ms=next((arm["inject_ms"] for arm in study.arms.values()), 0.0),
        seed=int(found.loaded.runs["seed"].min()),
    )


def _half_width(ratios: Sequence[float]) -> float:
    """Of the t interval of 95 % over all blocks; it was what the sleep was chosen by."""
    e = geometric_mean(ratios)
    return math.sqrt(e.high / e.low) - 1 if e.low and e.high else math.nan


def counted(results: Path) -> tuple[list[Told], list[Told]]:
    """What the logs of the studies of either kind say."""
    equal, injected = (
        [told(folder) for folder in sorted(results.glob(f"{kind}-*"))] for kind in KINDS
    )
    return equal, injected


def sleep_ms(equal: Sequence[Told]) -> float:
    """Three half-widths of a step, by the medians of the studies of equal arms."""
    half = statistics.median(one.half_width for one in equal)
    return round(TIMES * half * statistics.median(one.step_ms for one in equal), 1)


def count(equal: Sequence[Told], injected: Sequence[Told]) -> list[str]:
    """The counts, two of them beside their bars."""
    false = sum(one.called for one in equal)
    slower = sum(one.slower for one in injected)
    called = sum(one.called and one.slower for one in injected)
    most, every = int(MOST_FALSE * len(equal)), [*equal, *injected]
    return [
        f"equal arms called different: {false} of {len(equal)} (bar: at most {most})",
        f"slowdown found by the interval: {slower} of {len(injected)} (bar: all)",
        f"slowdown called faster or slower, not equal: {called} of {len(injected)}",
        f"settled: {sum(one.verdict != 'not settled' for one in every)} of {len(every)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--studies", type=int, default=20, help="of each kind")
    parser.add_argument("--blocks", help="of each study, instead of the shipped number")
    parser.add_argument("--count", action="store_true", help="run nothing; read the logs there are")
    asked = parser.parse_args()
    # from here, so that no log holds a path of this machine
    results = Path(os.path.relpath(asked.results, ROOT))
    os.chdir(ROOT)
    if asked.count:
        equal, injected = counted(results)
    else:
        blocks = ["--blocks", asked.blocks] if asked.blocks else []
        every = range(1, asked.studies + 1)
        equal = [run(study("aa", i, results, 0.0), results, blocks) for i in every]
        sleep = sleep_ms(equal)
        injected = [run(study("injected", i, results, sleep), results, blocks) for i in every]
    with (results / TABLE).open("w", newline="") as file:
        table = csv.DictWriter(file, list(Told.__annotations__), lineterminator="\n")
        table.writeheader()
        table.writerows(vars(one) for one in (*equal, *injected))
    print("\n".join(count(equal, injected)))


if __name__ == "__main__":
    main()
