"""What the doctor is asked: its command line, checked before anything is looked at."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bench.backends.catalogue import REFERENCE, facts
from bench.backends.catalogue import cells as known_cells
from bench.config import Parser, RunConfig, make_config

_MOST_S = 3600
_WHAT = """Look at this machine, or under mpirun, srun, torchrun or horovodrun at this launch: one
line per finding, with the cure. Exit status: 0 fit (warnings included), 1 a failure was found,
2 the input was wrong."""
_EXAMPLE = "example: mpirun -n 2 --bind-to none python -m bench doctor --world-size 2"
_FIELDS = {
    "world-size": "ranks that the launch must have",
    "dataset": "data set that must be there (default: synthetic)",
    "data-dir": "its folder",
    "rendezvous-dir": "folder that all ranks see; default: /tmp on one node",
    "threads": "compute threads of each rank (default: 1)",
}
# its trials start ranks alone, no servers
_CELLS = [cell for cell in known_cells() if "/" in cell and not facts(cell).server]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The doctor's command line. `cells` is None where the launcher decides which can be tried."""

    config: RunConfig  # data set, folders and threads, as runs will be told
    world_size: int | None  # only where it was asked for
    cells: list[str] | None
    json: bool
    limit_s: float


def parse(argv: list[str]) -> Options:
    """Options from a command line. --help prints and exits 0; raises UsageError on bad input."""
    parser = Parser(
        prog="python -m bench doctor", description=_WHAT, epilog=_EXAMPLE, allow_abbrev=False
    )
    for name, text in _FIELDS.items():
        parser.add_argument(f"--{name}", help=text, default=argparse.SUPPRESS)
    cells = f"of {', '.join(_CELLS)}; default: all that can be; --cells= tries none"
    parser.add_argument("--cells", type=_cells, help=f"what to try, comma-separated, {cells}")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--limit-s", type=_seconds, default=60.0, help="for each try (default: 60)")
    given = vars(parser.parse_args(argv))
    own = {name: given.pop(name) for name in ("cells", "json", "limit_s")}
    # bench's own rules know its fields: which data sets there are, and which need a folder
    config = make_config({"backend": REFERENCE, "batch_per_rank": 1, **given})
    asked = config.world_size if "world_size" in given else None
    return Options(config=config, world_size=asked, **own)


def _seconds(text: str) -> float:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MOST_S}")
    return float(text)


def _cells(text: str) -> list[str]:
    cells = [cell for cell in text.split(",") if cell]
    if wrong := [cell for cell in cells if cell not in _CELLS]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(_CELLS)}")
    return cells
