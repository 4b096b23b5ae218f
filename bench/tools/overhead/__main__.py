"""python -m bench.tools.overhead: measure both designs for every cell, keep the raw seconds, print
the figures.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.config import RunConfig, UsageError, make_config
from bench.launch import launcher
from bench.launch import world as launching
from bench.launch.resources import environment
from bench.record import RunLog
from bench.tools import overhead
from bench.tools.overhead.summary import (
    PAIRS,
    STEPS,
    Turns,
    known_well_enough,
    summarise_apart,
    summarise_turns,
)

RESULTS = Path("results/mine/overhead")
LIMIT_S = 600  # of one launch
CELLS = {"single": 1, "ddp/mpi": 2, "horovod/mpi": 2}  # ranks of each
MIN_LAUNCHES, MAX_LAUNCHES = 6, 24
BLOCKS_APART = (
    12  # fixed beforehand: the half-width of two equal things, about 1.5 % apart, is then about 1 %
)
ARMS_APART = ("ours", "bare", "bare again")


def main() -> int:
    assert overhead.__doc__
    parser = argparse.ArgumentParser(
        prog="python -m bench.tools.overhead", description=overhead.__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help=f"folder of results (default: {RESULTS})",
    )
    parser.add_argument(
        "--cells",
        type=lambda text: text.split(","),
        default=list(CELLS),
        metavar="CELL,...",
        help="which",
    )
    parser.add_argument(
        "--designs",
        type=lambda text: text.split(","),
        default=["turns", "apart"],
        metavar="DESIGN,...",
    )
    parser.add_argument(
        "--rank", choices=("turns", "bare"), help=argparse.SUPPRESS
    )  # inside a launched rank
    given, rest = parser.parse_known_args()
    if given.rank:
        return rank_main(given.rank, rest)
    if (
        unknown := rest
        or sorted({*given.cells} - {*CELLS})
        or sorted({*given.designs} - {"turns", "apart"})
    ):
        print(
            f"error: unknown {unknown[0]!r}; cells are {', '.join(CELLS)}, designs turns and apart",
            file=sys.stderr,
        )
        return 2
    try:
        return compare(
            given.results / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"), given.cells, given.designs
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}; run make setup, or look above", file=sys.stderr)
        return 1


def compare(folder: Path, cells: list[str], designs: list[str]) -> int:
    """Measure into `folder` and print the figures; 0 if all bars hold."""
    folder.mkdir(parents=True)
    good = True
    for cell in cells:
        if "turns" in designs:
            good &= summarise_turns(cell, take_turns(folder, cell))
        if "apart" in designs:
            good &= summarise_apart(
                cell, [run_apart(folder, cell, block) for block in range(BLOCKS_APART)]
            )
    return 0 if good else 1


def take_turns(folder: Path, cell: str) -> list[Turns]:
    """Fresh process groups, each with both loops, until the ratio is known well enough."""
    launches: list[Turns] = []
    while len(launches) < MIN_LAUNCHES or (
        len(launches) < MAX_LAUNCHES and not known_well_enough(launches)
    ):
        path = folder / f"turns-{_slug(cell)}-{len(launches):02d}.jsonl"
        config = _config(cell, path, warmup_steps=5, windows=PAIRS, steps_per_window=STEPS)
        launch(config, ["bench.tools.overhead", "--rank", "turns"])
        assert config.log_path is not None
        launches.append(Turns(config.log_path))
    return launches


def run_apart(folder: Path, cell: str, block: int) -> dict[str, Path]:
    """One block: every arm in fresh processes of its own, in an order drawn from the block's
    number.
    """
    paths = {
        arm: folder / f"apart-{_slug(cell)}-{block:02d}-{_slug(arm)}.jsonl" for arm in ARMS_APART
    }
    for arm in random.Random(block).sample(ARMS_APART, len(ARMS_APART)):
        config = _config(cell, paths[arm], warmup_steps=5, windows=6, steps_per_window=6)
        launch(config, ["bench"] if arm == "ours" else ["bench.tools.overhead", "--rank", "bare"])
    return paths


def _slug(text: str) -> str:
    return text.replace("/", "-").replace(" ", "-")


def _config(cell: str, log_path: Path, **fields: int) -> RunConfig:
    backend, _, transport = cell.partition("/")
    cell_fields = {"backend": backend, "transport": transport or "none", "world_size": CELLS[cell]}
    return make_config(
        {**cell_fields, **fields, "batch_per_rank": 16, "dataset": "digits", "log_path": log_path}
    )


def launch(config: RunConfig, module: list[str]) -> None:
    """One fresh process group; what it says is shown only where it fails."""
    # left alone, some processes, bare or not, give memory back and fetch it again in every step:
    # noise between processes that hides what is looked for
    keep_memory = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
    env = {**os.environ, **keep_memory, **launcher.root_variables()}
    ranks = launcher.command("mpirun", config.world_size, args=launcher.ON_THIS_MACHINE)
    command = [*ranks, sys.executable, "-m", *module, *config.to_argv()]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, command)


def rank_main(which: str, argv: list[str]) -> int:
    """Inside a rank: the resources that `python -m bench` sets, then the measurement."""
    from bench.config import parse_argv

    place = launching.discover(os.environ)
    config = parse_argv(argv)
    os.environ.update(environment(config, place, len(os.sched_getaffinity(0)), os.environ))
    from bench.tools.overhead.measure import measure_bare, measure_turns

    try:
        {"turns": measure_turns, "bare": measure_bare}[which](
            config, place, RunLog(config.log_path if place.rank == 0 else None)
        )
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
