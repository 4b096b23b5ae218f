"""Worlds that are started together: how each is told its place, and the memory that is left."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.config import UsageError
from bench.launch.machine import machine_bytes

VARIABLE = "BENCH_TURNS"  # set by who starts several worlds together: LAUNCH TURN WORLDS
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "bench-turns"


@dataclass(frozen=True)
class Place:
    """A world's place among those that were started together: `launch` names them all."""

    launch: str
    turn: int
    worlds: int

    @property
    def words(self) -> str:
        """The value of VARIABLE."""
        return f"{self.launch} {self.turn} {self.worlds}"

    def record(self) -> dict[str, object]:
        """The same as plain values, for the run log."""
        return asdict(self)


def place_of(env: Mapping[str, str]) -> Place | None:
    """This world's place; None of a world that was started alone. Raises UsageError."""
    words = env.get(VARIABLE, "").split()
    if not words:
        return None
    if len(words) == 3 and words[0].isalnum() and words[1].isdecimal() and words[2].isdecimal():
        place = Place(words[0], int(words[1]), int(words[2]))
        if place.turn < place.worlds:
            return place
    rule = "must be 'LAUNCH TURN WORLDS', as python -m slurm sets it; unset it"
    raise UsageError(f"{VARIABLE}={env[VARIABLE]!r} {rule}")


def table_path(launch: str) -> Path:
    """The file in a node's memory that the worlds of a launch share."""
    return _SHARED_MEMORY / f"{_PREFIX}-{os.geteuid()}-{launch}"


def tables() -> Iterator[Path]:
    """Those of all launches of this user on this node."""
    return _SHARED_MEMORY.glob(table_path("*").name)


def free_bytes() -> int | None:
    """Memory that new processes may take without swapping; None where the kernel does not tell."""
    with suppress(OSError):
        told = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
        return None if told is None else min(1024 * int(told[1]), machine_bytes())
    return None
