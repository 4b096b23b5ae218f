"""What the doctor is asked: its command line, checked before anything is looked at."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bench.backends.catalogue import cells as known_cells
from bench.config import UsageError, make_config


@dataclass(frozen=True)
class Options:
    """The doctor's command line. `cells` is None where the launcher decides which can be tried."""

    world_size: int | None = None
    dataset: str = "synthetic"
    data_dir: Path | None = None
    rendezvous_dir: Path | None = None
    threads: int = 1
    cells: tuple[str, ...] | None = None
    json: bool = False
    limit_s: float = 60.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(argv: list[str]) -> Options:
    """Options from a command line. --help prints and exits 0; raises UsageError on bad input."""
    parser = _Parser(
        prog="python -m bench doctor",
        description="Look at this machine, or under mpirun, srun, torchrun or horovodrun at this "
        "launch: one line per finding, "
        "with the cure. Exit status: 0 fit (warnings included), 1 a failure was found, 2 the "
        "input was wrong.",
        epilog="example: mpirun -n 2 --bind-to none python -m bench doctor --world-size 2",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--world-size", type=_positive, metavar="N", help="ranks that the launch must have"
    )
    parser.add_argument(
        "--dataset", default="synthetic", help="data set that must be there (default: synthetic)"
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="its folder")
    parser.add_argument(
        "--rendezvous-dir",
        type=Path,
        metavar="DIR",
        help="folder that all ranks see; default: /tmp on one node",
    )
    parser.add_argument(
        "--threads",
        type=_positive,
        default=1,
        metavar="N",
        help="compute threads of each rank (default: 1)",
    )
    cells = (
        f"what to try, comma-separated, of {', '.join(_exchanging())}; default: all that can be; "
        f"--cells= tries none"
    )
    parser.add_argument("--cells", type=_cells, help=cells)
    parser.add_argument(
        "--json", action="store_true", help="print the findings as JSON on standard output"
    )
    parser.add_argument(
        "--limit-s",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds for each try (default: 60)",
    )
    options = Options(**vars(parser.parse_args(argv)))
    # bench's own rules know which data sets there are, and which need a folder
    make_config({"dataset": options.dataset, "data_dir": options.data_dir, "batch_per_rank": 1})
    return options


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 3600")
    return seconds


def _cells(text: str) -> tuple[str, ...]:
    cells, known = tuple(filter(None, text.split(","))), _exchanging()
    for cell in cells:
        if cell not in known:
            raise argparse.ArgumentTypeError(f"{cell!r} is none of {', '.join(known)}")
    return cells


def _exchanging() -> list[str]:
    return [cell for cell in known_cells() if "/" in cell]
