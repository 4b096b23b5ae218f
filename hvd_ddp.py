"""The command of an installed copy: `hvd-ddp bench ...` is `python -m bench ...` anywhere."""

import runpy
import sys
from pathlib import Path

from bench import called, version  # it ends an old Python, for which this file has to parse

ROOMS = {
    "bench": "measure one configuration, or look at the machine: bench doctor",
    "slurm": "turn a study into job scripts; run, follow and resume them",
    "plots": "turn run logs into figures, tables and a report",
}
SHORT = {"check": ["slurm", "check"]}  # a command that is one of a room's
USAGE = """\
usage: hvd-ddp ROOM ...

rooms:
{}

check is short for slurm check: is this machine as fast as its reference?

options:
  -h, --help   show this help; after a room, its own
  --version    print the version and stop

example: hvd-ddp slurm run local""".format(
    "\n".join("  {:11}  {}".format(*row) for row in ROOMS.items())
)


def main() -> int:
    """Run a room as `python -m` does; without one, say which there are."""
    sys.argv[1:2] = SHORT.get(sys.argv[1], sys.argv[1:2]) if sys.argv[1:] else ["--help"]
    room = sys.argv[1]
    if room in ROOMS:
        called.COMMAND = "hvd-ddp"
        sys.path.append(str(Path.cwd()))  # last: the user's own models and data sets
        del sys.argv[1]
        runpy.run_module(room, run_name="__main__", alter_sys=True)
    elif room in ("-h", "--help", "--version"):
        print(version() if room == "--version" else USAGE)
    else:
        print(
            f"error: {room!r} is none of {', '.join([*ROOMS, *SHORT])}; try hvd-ddp --help",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
