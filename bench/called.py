"""What the user typed to start this program, for hints that can be typed again."""

from __future__ import annotations

# the command of an installed copy sets it to its own name; "": a room is started by `python -m`
COMMAND = ""


def command(room: str, python: str = "python") -> str:
    """What starts a room, as in `python -m slurm`."""
    return f"{COMMAND} {room}" if COMMAND else f"{python} -m {room}"
