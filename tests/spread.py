"""The spread of a pair by turns against that of separate launches, really run side by side.

python -m tests.spread --results results/mine/spread: the study `local` without its baseline,
two launches by turns and two one after the other, alternating, which first too; with --load a
process that computes in bursts shares the cores. The same command goes on where it was stopped.
With --count it runs nothing and derives the table from the logs again.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import tomlkit
from scipy.stats import f

from bench.study.stats import MIN_BLOCKS
from plots.report.write import analysed

ROOT = Path(__file__).parents[1]
FORMS = {"turns": True, "apart": False}
TABLE = "spread.csv"
BURST_S = (0.5, 8.0)  # how long the load computes, and how long it rests: uniform between
SEED = 1  # of the load's bursts


def study(form: str, results: Path, load: bool) -> Path:
    """A study file like the shipped one, that takes turns or does not."""
    text = tomlkit.parse((ROOT / "slurm/studies/local.toml").read_text())
    text["name"], text["turns"] = f"{form}-{'load' if load else 'quiet'}", FORMS[form]
    text["cells"] = ["ddp/mpi", "horovod/mpi"]
    path = results / "studies" / f"{text['name']}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(text))
    return path


def burst() -> None:
    """Compute and rest, until somebody ends the process."""
    drawn = random.Random(SEED)
    while True:
        ends = time.monotonic() + drawn.uniform(*BURST_S)
        while time.monotonic() < ends:
            pass
        time.sleep(drawn.uniform(*BURST_S))


@contextmanager
def loaded(load: bool) -> Iterator[None]:
    """With the stated load beside it, or without."""
    process = get_context("spawn").Process(target=burst, daemon=True)
    if load:
        process.start()
    try:
        yield
    finally:
        if load:
            process.kill()


def measure(results: Path, load: bool, launches: int) -> None:
    """So many launches of either form, two at a time; what is done already is left out."""
    files = [study(form, results, load) for form in FORMS]
    with loaded(load):
        for n in range(2, launches + 1, 2):  # in half of them each side begins: an even number
            for path in files[:: 1 if n % 4 else -1]:
                words = ["slurm", "run", str(path), "--results", str(results), "--blocks", str(n)]
                if subprocess.run([sys.executable, "-m", *words]).returncode:
                    sys.exit(f"{path}: launches to {n} are not ok; go on with this command")


def rows(results: Path) -> Iterator[dict[str, object]]:
    """Of each condition and form: n, ratio and the sd of its logarithm, role fitted."""
    for condition in ("quiet", "load"):
        for form in FORMS:
            if not (folder := results / f"{form}-{condition}").exists():
                continue
            (c,) = analysed(folder).comparisons
            p = c.paired
            yield {"form": form, "load": condition, "n": p.n, "ratio": p.ratio, "sd_log": p.sd_log}


def in_words(table: list[dict[str, object]]) -> Iterator[str]:
    """By what part the spread is smaller, with the F interval of 95 %."""
    for condition in ("quiet", "load"):
        there = [row for row in table if row["load"] == condition and row["sd_log"] is not None]
        both = {row["form"]: row for row in there if int(str(row["n"])) >= MIN_BLOCKS}
        if both.keys() != FORMS.keys():
            continue
        (turns, n), (apart, m) = [
            (float(str(both[form]["sd_log"])), int(str(both[form]["n"]))) for form in FORMS
        ]
        low, high = (turns / apart / math.sqrt(f.ppf(q, n - 2, m - 2)) for q in (0.975, 0.025))
        yield (
            f"{condition}: sd by turns {100 * turns:.1f} % (n = {n}), by separate launches "
            f"{100 * apart:.1f} % (n = {m}): {turns / apart:.2f} [{low:.2f}, {high:.2f}]"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--launches", type=int, default=10, help="of each form")
    parser.add_argument("--load", action="store_true", help="beside a process that computes")
    parser.add_argument("--count", action="store_true", help="run nothing; read the logs there are")
    asked = parser.parse_args()
    # from here, so that no log holds a path of this machine
    results = Path(os.path.relpath(asked.results, ROOT))
    os.chdir(ROOT)
    if not asked.count:
        measure(results, asked.load, asked.launches)
    table = list(rows(results))
    with (results / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, ["form", "load", "n", "ratio", "sd_log"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    print("\n".join(in_words(table)))


if __name__ == "__main__":
    main()
