"""Is a machine quiet? What others take of a node's processors, from the kernel's counters."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.launch import cores

# Share of a node's processor time from a run's start to its end. Where ranks leave no core idle,
# the steps lack what others take, and more than a study's usual margin may decide a verdict.
NOISY = 0.02
_LEAST_TICKS = 50  # fewer are too coarse for such a share
_MOST_NAMES = 3


def share_of_others(busy: int, idle: int, stolen: int, run_ticks: int) -> float:
    """Of a node's clock ticks, those of other processes and of a hypervisor's other guests.

    A node counts the process that each clock tick meets, a process counts the time that it ran. So
    threads that wake often and briefly, as Gloo's do, can add up to more than their node. That must
    not hide what was stolen.
    """
    return (max(0, busy - run_ticks) + stolen) / max(1, busy + idle + stolen)


class Others(NamedTuple):
    """What others take of a node now."""

    hostname: str
    share: float  # of the node's processor time, what was stolen included
    stolen: float  # of the same, by a hypervisor for its other guests
    processes: tuple[str, ...]  # those that take most, as 'cc1plus (4711)'; none where none is seen

    @property
    def noisy(self) -> bool:
        """Whether a run at this time would count as disturbed."""
        return self.share > NOISY

    def __str__(self) -> str:
        most = f", most of it {', '.join(self.processes)}" if self.processes else ""
        stolen = f"{100 * self.stolen:.0f} %"
        stolen = "" if stolen == "0 %" else f", other guests of its host {stolen}"
        part = f"{100 * (self.share - self.stolen):.0f} %"
        return f"other processes take {part} of {self.hostname}'s processor time{most}{stolen}"


class Watch:
    """Counts from its making on. A run's own processes are those with this process's command line,
    which all ranks have under any launcher, and their descendants.
    """

    def __init__(self) -> None:
        self._node, self._before = cores.of_the_node(), dict(_processes())

    def others(self) -> Others | None:
        """What others took until now; None where the kernel does not tell, or after too short."""
        node, after = cores.of_the_node(), dict(_processes())
        if node is None or self._node is None or node.all - self._node.all < _LEAST_TICKS:
            return None
        busy, _, stolen, idle = (now - then for now, then in zip(node, self._node, strict=True))
        family = _family(after)
        spent = sum(after[pid].all_ticks for pid in family)
        spent -= sum(self._before[pid].all_ticks for pid in _family(self._before))
        took = Counter({pid: process.ticks for pid, process in after.items() if pid not in family})
        took.subtract({pid: p.ticks for pid, p in self._before.items() if pid in took})
        least = NOISY / 4 * (busy + idle + stolen)
        most = [pid for pid, ticks in took.most_common(_MOST_NAMES) if ticks > least]
        share = share_of_others(busy, idle, stolen, spent)
        names = tuple(f"{after[pid].name} ({pid})" for pid in most)
        return Others(socket.gethostname(), share, stolen / (busy + idle + stolen), names)


def look(seconds: float) -> Others | None:
    """What others take of this machine in the next seconds, before a run is begun."""
    watch = Watch()
    time.sleep(seconds)
    return watch.others()


class _ProcessTicks(NamedTuple):
    name: str
    parent: int
    ticks: int  # its own
    all_ticks: int  # and those of its children that have ended
    command: bytes


def _processes() -> Iterator[tuple[int, _ProcessTicks]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            head, _, tail = (folder / "stat").read_text(errors="replace").rpartition(")")
            fields = tail.split()
            user, system, *ended = map(int, fields[11:15])
            name, parent = head.partition("(")[2], int(fields[1])
            command = (folder / "cmdline").read_bytes()
            ticks = user + system
            yield int(folder.name), _ProcessTicks(name, parent, ticks, ticks + sum(ended), command)


def _family(processes: dict[int, _ProcessTicks]) -> set[int]:
    """Processes with this process's command line, and their descendants."""
    root = processes.get(os.getpid())
    family = {pid for pid, process in processes.items() if root and process.command == root.command}
    while children := {p for p in processes.keys() - family if processes[p].parent in family}:
        family |= children
    return family
