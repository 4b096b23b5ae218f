"""What a node's cores do, for any process: the kernel's clock ticks, and the clock rates."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Ticks(NamedTuple):
    """Clock ticks since the machine started."""

    worked: int  # by any process
    interrupted: int  # by interrupts, which belong to no process
    stolen: int  # by a hypervisor, for its other guests
    idle: int

    @property
    def busy(self) -> int:
        return self.worked + self.interrupted + self.stolen

    @property
    def all(self) -> int:
        return self.busy + self.idle


def boot_id() -> str | None:
    """Read the kernel's name for its running since the last boot; None where it does not tell."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return None


def ticks() -> Ticks | None:
    """Read the ticks of the cores this process may use; None where the kernel does not tell."""
    return _read({f"cpu{core}" for core in os.sched_getaffinity(0)})


def of_the_node() -> Ticks | None:
    """Read the ticks of all cores together; None where the kernel does not tell."""
    return _read({"cpu"})


def _read(names: Collection[str]) -> Ticks | None:
    """Sum the lines `names`, such as 'cpu' for the node and 'cpu3' for a core.

    psutil numbers the cores that are online, and this process knows its own by the kernel's number.
    """
    with suppress(OSError, ValueError, IndexError):
        rows = [line.split() for line in _STAT.read_text().splitlines() if line.split()[0] in names]
        if len(rows) != len(names):
            return None
        # the columns after the first eight, of guests, are part of these
        user, nice, system, idle, wait, interrupt, soft, steal = (
            sum(int(row[column]) for row in rows) for column in range(1, 9)
        )
        return Ticks(user + nice + system, interrupt + soft, steal, idle + wait)
    return None


def busy_share(before: Ticks | None, after: Ticks | None) -> float | None:
    """Compute the cores' busy share between two readings; None where too short to be told."""
    if before is None or after is None or after.all <= before.all:
        return None
    return min(1.0, max(0.0, (after.busy - before.busy) / (after.all - before.all)))


def own_ticks(process: int) -> int:
    """Count the clock ticks that a process, its children and theirs have spent so far."""
    spent, family = 0, [str(process)]
    for pid in family:
        with suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent += sum(map(int, fields[11:15]))  # user and system, and of children that ended
            for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
                family += tasks.read_text().split()
    return spent


def mhz(cores: Collection[int]) -> float | None:
    """Read the mean clock of these cores now, in MHz; None where the kernel does not tell."""
    import psutil  # here: only a run asks, and rooms that ask for ticks need no such package

    with suppress(OSError, IndexError, NotImplementedError):
        clocks = psutil.cpu_freq(percpu=True)
        if len(clocks) != os.sysconf("SC_NPROCESSORS_CONF"):  # its places are no core's numbers
            return None
        return float(sum(clocks[core].current for core in cores) / len(cores))
    return None
