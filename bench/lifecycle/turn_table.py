"""What the worlds of a launch share on a node: a table of numbers in its memory."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.config import UsageError
from bench.lifecycle.peers import signal_others

VARIABLE = "BENCH_TURNS"  # set by who starts several worlds together: LAUNCH TURN SIZE,SIZE,...
SHARED_MEMORY = Path("/dev/shm")
WAY_OUT = "put turns = false into the study"
_PREFIX = "bench-turns"
MOST_LOCAL = 1024  # processes of a world on a node
_STALE_S = 86400.0
_WAKES, _WAKES_APART_S = 5, 0.001  # a single signal may come just before a process stops

EVERYBODY = -1  # has the turn once every world has had its last


@dataclass(frozen=True)
class Place:
    """A world's place among those that were started together: `launch` names them all.

    `sizes` are the processes of each world: a small one has none on the later nodes.
    """

    launch: str
    turn: int
    sizes: tuple[int, ...]

    @property
    def words(self) -> str:
        """The value of VARIABLE."""
        return f"{self.launch} {self.turn} {','.join(map(str, self.sizes))}"

    def record(self) -> dict[str, object]:
        """Describe this place for the run log."""
        return {"launch": self.launch, "turn": self.turn, "worlds": len(self.sizes)}


def place_of(env: Mapping[str, str]) -> Place | None:
    """Read this world's place; None for a world that was started alone. Raises UsageError."""
    words = env.get(VARIABLE, "").split()
    if not words:
        return None
    if len(words) == 3 and words[0].isalnum() and words[1].isdecimal():
        sizes = [size for size in words[2].split(",") if size.isdecimal() and int(size)]
        place = Place(words[0], int(words[1]), tuple(map(int, sizes)))
        if place.turn < len(sizes) == words[2].count(",") + 1:
            return place
    rule = "must be 'LAUNCH TURN SIZE,SIZE,...', as python -m slurm sets it; unset it"
    raise UsageError(f"{VARIABLE}={env[VARIABLE]!r} {rule}")


def table_path(launch: str) -> Path:
    """Name the file in this node's memory that the worlds of a launch share.

    With the node's name: several that are emulated on one machine share its memory.
    """
    return SHARED_MEMORY / f"{_PREFIX}-{os.geteuid()}-{launch}-{socket.gethostname()}"


def table_of(env: Mapping[str, str]) -> TurnTable | None:
    """Open the table of this world's launch, or return None for a world that was started alone.

    Raises UsageError, also where this node lets worlds share nothing.
    """
    place = place_of(env)
    if place is None:
        return None
    _remove_stale()
    try:
        return TurnTable(place)
    except OSError as error:
        wrong = f"{table_path(place.launch)} cannot be written ({error.strerror})"
        raise UsageError(f"{wrong}, which runs that take turns share; {WAY_OUT}") from None


class Process(NamedTuple):
    """A row of the table: a process of a world on this node."""

    world: int
    row: int
    pid: int


class TurnTable:
    """The table as one process sees it; each number has one writer at a time.

    Its file has a name only until all have met, so that nothing of it outlives them. Raises OSError
    where there is no room for it, and UsageError where this process cannot signal the others.
    """

    # slots; then (expected, done) of each world, then the rows
    _serial, _holder, _broken, _namespace, _worlds = range(5)

    def __init__(self, place: Place) -> None:
        self.place, self.worlds = place, len(place.sizes)
        self._path = table_path(place.launch)
        self._rows = self._worlds + 2 * self.worlds
        slots = self._rows + 2 * self.worlds * MOST_LOCAL
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, 8 * slots)  # zeros, whoever comes first
            os.posix_fallocate(fd, 0, 8 * slots)  # a full memory is told here, not by SIGBUS
            self._numbers = memoryview(mmap.mmap(fd, 8 * slots)).cast("q")
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._require_one_namespace()
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # mmap holds a copy of it
            os.close(fd)

    def _require_one_namespace(self) -> None:
        """Require one namespace: only there do process ids mean the same to all worlds."""
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        self._numbers[self._namespace] = self._numbers[self._namespace] or namespace
        if self._numbers[self._namespace] != namespace:
            wrong = "runs that take turns were started in different process-id namespaces"
            raise UsageError(f"{wrong}, as containers have: none could wake another; {WAY_OUT}")

    def forget_name(self) -> None:
        """Leave nothing of the table but for those who have it."""
        with suppress(OSError):
            self._path.unlink()

    @property
    def serial(self) -> int:
        """How many turns have begun."""
        return self._numbers[self._serial]

    @property
    def holder(self) -> int:
        """The world that has the turn; EVERYBODY once all are done."""
        return self._numbers[self._holder]

    @property
    def broken_by(self) -> int | None:
        """The world that ended before its time, if one did."""
        return self._numbers[self._broken] - 1 if self._numbers[self._broken] else None

    def give(self, world: int) -> None:
        """Begin the next turn."""
        self._numbers[self._holder] = world  # first: the serial says that there is a new holder
        self._numbers[self._serial] += 1

    def break_off(self, world: int) -> None:
        """Note the first world that ends before its time, and wake all: nobody may stay stopped."""
        self._numbers[self._broken] = self._numbers[self._broken] or world + 1
        self.forget_name()
        for _ in range(_WAKES):
            pids = (p.pid for world in range(self.worlds) for p in self.processes(world))
            signal_others(pids, signal.SIGCONT)
            time.sleep(_WAKES_APART_S)

    def register(self, world: int, local_rank: int, local_size: int) -> int:
        """Enter this process; its row."""
        row = self._rows + 2 * (world * MOST_LOCAL + local_rank)
        self._numbers[row] = os.getpid()
        self._numbers[self._worlds + 2 * world] = local_size
        return row

    def finish(self, world: int) -> None:
        """Note that a world has had its last turn."""
        self._numbers[self._worlds + 2 * world + 1] = 1

    def next_after(self, world: int, present: Sequence[int]) -> int:
        """Choose this node's next world that is not done, or EVERYBODY where all are done."""
        after = sorted(present, key=lambda other: (other <= world, other))
        return next((other for other in after if not self._is_done(other)), EVERYBODY)

    def _is_done(self, world: int) -> bool:
        return bool(self._numbers[self._worlds + 2 * world + 1])

    def acknowledge(self, row: int, serial: int) -> None:
        """Note that the process of a row has seen a turn begin."""
        self._numbers[row + 1] = serial

    def has_woken(self, process: Process, serial: int) -> bool:
        """Check whether a process has seen the turn `serial` begin."""
        return self._numbers[process.row + 1] >= serial

    def may_end(self, process: Process) -> bool:
        """Check whether a process has nothing more to do for the others."""
        return self.holder == EVERYBODY and self.has_woken(process, self.serial)

    def is_complete(self, world: int) -> bool:
        """Check whether all processes of a world on this node have entered."""
        expected = self._numbers[self._worlds + 2 * world]
        return 0 < expected == len(self.processes(world))

    def processes(self, world: int) -> list[Process]:
        """List the processes of a world that have entered."""
        first = self._rows + 2 * world * MOST_LOCAL
        expected = self._numbers[self._worlds + 2 * world]
        rows = (first + 2 * local for local in range(expected))
        return [Process(world, row, pid) for row in rows if (pid := self._numbers[row])]


def _remove_stale() -> None:
    """Remove tables of launches that were killed whole, a day ago or earlier."""
    for path in SHARED_MEMORY.glob(f"{_PREFIX}-{os.geteuid()}-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()
