"""python -m tests.overhead: launch the loops by turns in every cell, and print the figures."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

from bench.config import Parser, RunConfig, UsageError, make_config, parse_argv
from bench.launch import launcher
from bench.launch.machine import keep_freed
from bench.launch.world import discover, environment
from bench.record import RunLog
from tests import overhead

RESULTS = Path("results/mine/overhead")
LIMIT_S = 600  # of one launch
CELLS = {"single": 1, "ddp/mpi": 2, "horovod/mpi": 2}  # ranks of each
STEPS, PAIRS = 3, 8  # of a turn; of turns in one launch
MIN_LAUNCHES, MAX_LAUNCHES = 6, 24

LOWER_BOUND = 0.98  # of ours / bare, that the interval must keep above
HALF_WIDTH = 0.01  # of the ratio, at which there are enough launches
OWN_SHARE = 0.005  # of a step, that the harness may take between the calls of a step

Events = list[dict[str, Any]]


def main() -> int:
    if sys.argv[1:2] == ["--rank"]:
        return measure_here(sys.argv[2:])
    what = str(overhead.__doc__).splitlines()[0]
    parser = Parser(prog="python -m tests.overhead", description=what)
    add = parser.add_argument
    add("--results", type=Path, default=RESULTS, help=f"folder of results (default: {RESULTS})")
    add("--cells", type=partial(among, CELLS), default=[*CELLS], help=f"of {', '.join(CELLS)}")
    try:
        given = parser.parse_args()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder = given.results / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    good = True
    try:
        folder.mkdir(parents=True)
        for cell in given.cells:
            good &= turns_hold(cell, take_turns(folder, cell))
    except (OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}; run make setup, or look above", file=sys.stderr)
        return 1
    return int(not good)


def among(known: Collection[str], text: str) -> list[str]:
    """Split a comma-separated option, of known words."""
    if unknown := sorted({*text.split(",")} - {*known}):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
    return text.split(",")


def take_turns(folder: Path, cell: str) -> list[Turns]:
    """Launch fresh process groups, each with both loops, until the ratio is known well enough."""
    launches: list[Turns] = []
    while len(launches) < MIN_LAUNCHES or (
        len(launches) < MAX_LAUNCHES and not known_well_enough(launches)
    ):
        path = folder / f"turns-{cell.replace('/', '-')}-{len(launches):02d}.jsonl"
        launch(cell, path)
        launches.append(Turns(path))
    return launches


def launch(cell: str, log_path: Path) -> None:
    """Start one fresh process group, and show what it says only where it fails."""
    backend, _, transport = cell.partition("/")
    fields = {"backend": backend, "transport": transport or "none", "world_size": CELLS[cell]}
    fields |= {"windows": PAIRS, "steps_per_window": STEPS, "warmup_steps": 5}
    fields |= {"batch_per_rank": 16, "dataset": "digits", "log_path": log_path}
    env = {**os.environ, **launcher.root_variables()}
    ranks = launcher.command("mpirun", CELLS[cell], args=launcher.ON_THIS_MACHINE)
    command = [
        *ranks,
        sys.executable,
        "-m",
        "tests.overhead",
        "--rank",
        *make_config(fields).to_argv(),
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()


def measure_here(argv: list[str]) -> int:
    """Set, inside a rank, the resources that `python -m bench` sets, and then measure."""
    place, config = discover(os.environ), parse_argv(argv)
    keep_freed(os.environ)
    os.environ.update(environment(config, place, len(os.sched_getaffinity(0)), os.environ))
    from tests.overhead.measure import measure  # loads torch: after the threads are set

    try:
        measure(config, place, RunLog(config.log_path if place.rank == 0 else None))
    except UsageError as error:  # as of a framework that is not installed
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def read_events(path: Path) -> Events:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


class Turns:
    """The raw figures of one launch in which the loops took turns, as read from its log."""

    def __init__(self, path: Path) -> None:
        events = read_events(path)
        self.seconds = [e["seconds"] for e in events if e["event"] == "pair"]  # by loop
        self.end = _end(events)
        self._images = STEPS * RunConfig(**events[0]["config"]).samples_per_step

    def ratio(self, other: str) -> float:
        """Divide our throughput by that of `other`: geometric mean over the pairs of turns."""
        return geometric_mean(turn[other] / turn["ours"] for turn in self.seconds)

    def images_per_s(self, name: str) -> float:
        seconds: float = mean(turn[name] for turn in self.seconds)
        return self._images / seconds


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return geometric mean and ends of its 95 % interval, of ratios measured at least twice."""
    # here, because a measured rank begins in this file and needs no statistics
    from bench.study import stats

    found = stats.geometric_mean(ratios)
    assert found.low is not None
    assert found.high is not None
    return found.value, found.low, found.high


def in_words(ratios: Sequence[float], unit: str) -> str:
    """Describe the ratios as '1.0012 [0.9950, 1.0074] (95 %, n=12 launches)'."""
    value, low, high = interval(ratios)
    return f"{value:.4f} [{low:.4f}, {high:.4f}] (95 %, n={len(ratios)} {unit})"


def known_well_enough(launches: Sequence[Turns]) -> bool:
    """Check whether the interval of ours / bare is narrow enough to stop."""
    value, low, _ = interval([launch.ratio("bare") for launch in launches])
    return 1 - low / value <= HALF_WIDTH


def turns_hold(cell: str, launches: Sequence[Turns]) -> bool:
    """Print one cell's figures; true if it holds the bars."""
    ratios = [launch.ratio("bare") for launch in launches]
    share = max(launch.end["own_share"] for launch in launches)
    same = all(launch.end["status"] == "ok" for launch in launches)
    good = same and interval(ratios)[1] >= LOWER_BOUND and share < OWN_SHARE
    good = good and known_well_enough(launches)
    pairs = f"launches of {len(launches[0].seconds)} pairs"
    print(f"{cell}, in turns: throughput of ours / bare {in_words(ratios, pairs)}")
    print(f"  harness's own time between steps: at most {100 * share:.3f} % of a step")
    names = launches[0].seconds[0]
    rates = {name: mean(launch.images_per_s(name) for launch in launches) for name in names}
    print("  " + ", ".join(f"{name} {rate:.1f} images/s" for name, rate in rates.items()))
    if "recipe" in names:
        recipe = in_words([launch.ratio("recipe") for launch in launches], "launches")
        print(f"  ours / Horovod's recipe {recipe}")
    bars = f"same parameters, lower bound >= {LOWER_BOUND}, half-width <= {HALF_WIDTH:.0%}, own "
    print(f"  {_verdict(good)}: {bars}time < {OWN_SHARE:.1%}", flush=True)
    return good


def _end(log: Events) -> dict[str, Any]:
    return next(e for e in log if e["event"] == "end")


def _verdict(good: bool) -> str:
    return "holds" if good else "DOES NOT HOLD"


if __name__ == "__main__":
    sys.exit(main())
