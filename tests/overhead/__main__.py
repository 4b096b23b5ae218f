"""python -m tests.overhead: launch the loops by turns in every cell, and print the ratios."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

from bench import command
from bench.config import make_config, parse_argv
from bench.lifecycle.turns import Turns
from bench.progress import opening
from bench.study import stats
from tests import overhead
from tests.bench import ranks

CELLS = {"single": 1, "ddp/mpi": 2, "horovod/mpi": 2}  # ranks of each
LAUNCHES = 6  # of each cell: as many as were fixed beforehand, whatever they show
PAIRS, STEPS = 60, 1  # of turns in a launch; of a turn
LIMIT_S = 600  # of one launch
LOWER_BOUND = 0.98  # of our throughput over the bare loop's, that the interval must keep above


def main() -> int:
    if sys.argv[1:2] == ["--rank"]:
        return command.start(partial(parse_argv, sys.argv[2:]), opening, load)
    parser = argparse.ArgumentParser(prog="python -m tests.overhead", description=overhead.__doc__)
    add = parser.add_argument
    add("--results", type=Path, default=Path("results/mine/overhead"), help="folder of results")
    add("--cells", nargs="+", choices=CELLS, default=[*CELLS], help="what to measure (all)")
    options = parser.parse_args()
    folder = options.results / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    print(f"about {5 * len(options.cells)} min on two quiet cores; logs: {folder}", flush=True)
    folder.mkdir(parents=True)
    good = [
        holds(cell, [launch(cell, folder, number) for number in range(LAUNCHES)])
        for cell in options.cells
    ]
    return int(not all(good))


def load(_: Turns) -> command.RunBody:
    """Give what a rank does, once its threads are set."""
    from tests.overhead.measure import measure  # loads torch

    return measure


def launch(cell: str, folder: Path, number: int) -> float:
    """Start one fresh process group; show what it says only where it fails. Returns its ratio."""
    path = folder.absolute() / f"{cell.replace('/', '-')}-{number:02d}.jsonl"
    backend, _, transport = cell.partition("/")
    fields = {"backend": backend, "transport": transport or "none", "world_size": CELLS[cell]}
    fields |= {"windows": PAIRS, "steps_per_window": STEPS, "warmup_steps": 5, "seed": number}
    fields |= {"batch_per_rank": 16, "dataset": "digits", "log_path": path}
    words = ("-m", "tests.overhead", "--rank", *make_config(fields).to_argv())
    done = ranks.run(ranks.mpirun(CELLS[cell], *words), timeout_s=LIMIT_S)
    if done.returncode:
        sys.exit(done.stderr)
    return ratio_in(path)


def ratio_in(path: Path) -> float:
    """Return our throughput over the bare loop's: the median of the pairs of a launch."""
    events = map(json.loads, path.read_text().splitlines())
    pairs = [event["seconds"] for event in events if event["event"] == "pair"]
    ratio: float = median(pair["bare"] / pair["ours"] for pair in pairs)
    return ratio


def holds(cell: str, ratios: Sequence[float]) -> bool:
    """Print one cell's ratio with its 95 % interval over launches; true if it holds the bar."""
    mean = stats.geometric_mean(ratios)
    low, high = mean.low or 0.0, mean.high or 0.0
    word = "holds" if low >= LOWER_BOUND else "DOES NOT HOLD"
    print(f"{cell}: throughput of ours / bare {mean.value:.4f} [{low:.4f}, {high:.4f}]", end=" ")
    print(f"(95 %, n={mean.n} launches of {PAIRS} pairs)")
    print(f"  {word}: lower bound >= {LOWER_BOUND}", flush=True)
    return low >= LOWER_BOUND


if __name__ == "__main__":
    sys.exit(main())
