"""How busy this rank's cores are, by the kernel's count, whoever keeps them so."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_IDLE = (3, 4)  # idle, and idle while a disk is waited for
_COUNTED = 8  # what follows, of guests, is in the others as well


class Ticks(NamedTuple):
    """Clock ticks of some cores since the machine started."""

    busy: int
    all: int


def ticks() -> Ticks | None:
    """Of the cores that this process may use; None where the kernel does not tell."""
    try:
        text = Path("/proc/stat").read_text()
    except OSError:
        return None
    return parse(text, os.sched_getaffinity(0))


def parse(text: str, cores: Collection[int]) -> Ticks | None:
    """The same from the text of /proc/stat."""
    names = {f"cpu{core}" for core in cores}
    rows = [line.split() for line in text.splitlines() if line.split(" ", 1)[0] in names]
    counts = [[int(n) for n in row[1 : 1 + _COUNTED]] for row in rows]
    if len(counts) != len(names):
        return None
    total, idle = sum(map(sum, counts)), sum(row[i] for row in counts for i in _IDLE)
    return Ticks(busy=total - idle, all=total)


def busy_share(before: Ticks | None, after: Ticks | None) -> float | None:
    """Share of the time between that the cores were busy; None where too short to be told."""
    if before is None or after is None or after.all <= before.all:
        return None
    return min(1.0, max(0.0, (after.busy - before.busy) / (after.all - before.all)))
