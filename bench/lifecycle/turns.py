"""Turns of several worlds (each the ranks of one run) on the same nodes: one world works at a time.

Windows of two separate launches lie half a minute apart, and a shared machine's speed may change
meanwhile. Worlds that live at the same time are measured window by window, a second apart (after
duet benchmarking: Bulej et al. 2020, and interleaved trials: Abedi & Brecht 2017).

A rank without the turn stops itself by SIGSTOP, with all of its threads and data loading processes.
A blocking read would leave Horovod's engine and MPI's progress threads at work. When a world's turn
ends, its last local rank on each node wakes the next world's ranks there. Only each world's own
barriers cross nodes. On a node, worlds share only a table of numbers in its memory. If all ranks of
a world are killed, the driver that started the worlds wakes the other worlds, which then end.
"""

from __future__ import annotations

import mmap
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.config import UsageError
from bench.launch.world import Launch
from bench.lifecycle.peers import ENDED, STOPPED, loading_processes, signal_others, state

VARIABLE = "BENCH_TURNS"  # set by who starts several worlds together: LAUNCH TURN SIZE,SIZE,...
SHARED_MEMORY = Path("/dev/shm")
MOST_LOCAL = 1024  # processes of a world on a node
EVERYBODY = -1  # has the turn once every world has had its last

_WAY_OUT = "put turns = false into the study"
_WAKES, _WAKES_APART_S = 5, 0.001  # a single signal may come just before a process stops
_POLL_S = 0.001
_SETTLE_S = 0.002  # a byte that a library still holds would wait for a stopped sender
_HEARD_S = 0.5  # a signal that was sent to a stopped process is handled within it
_MEET = 0.8  # of the stall limit: time for the worlds of a node to find one another

Barrier = Callable[[], None]
Counters = Callable[[], Mapping[str, int | None]]


@dataclass(frozen=True)
class Place:
    """A world's place among the worlds of one launch, which were started together.

    `launch` is their common id, `turn` this world's index, `sizes` each world's number of ranks.
    Every world fills the nodes in the same order, so that all worlds use the first node.
    """

    launch: str
    turn: int
    sizes: tuple[int, ...]

    @property
    def words(self) -> str:
        """This place as the value of the environment variable VARIABLE."""
        return f"{self.launch} {self.turn} {','.join(map(str, self.sizes))}"

    def record(self) -> dict[str, object]:
        """Describe this place for the run log."""
        return {"launch": self.launch, "turn": self.turn, "worlds": len(self.sizes)}


def place_of(env: Mapping[str, str]) -> Place | None:
    """Read this world's place; None if VARIABLE is not set. Raises UsageError on a wrong value."""
    if not (words := env.get(VARIABLE, "")):
        return None
    if match := re.fullmatch(r"([0-9a-zA-Z]+) ([0-9]+) ([1-9][0-9]*(?:,[1-9][0-9]*)*)", words):
        place = Place(match[1], int(match[2]), tuple(map(int, match[3].split(","))))
        if place.turn < len(place.sizes):
            return place
    rule = "must be 'LAUNCH TURN SIZE,SIZE,...', as python -m slurm sets it; unset it"
    raise UsageError(f"{VARIABLE}={words!r} {rule}")


def table_path(launch: str) -> Path:
    """Name the file in this node's memory that the worlds of a launch share.

    The host's name is in the file's name, as nodes emulated on one machine share its memory.
    """
    return SHARED_MEMORY / f"bench-turns-{os.geteuid()}-{launch}-{socket.gethostname()}"


class Process(NamedTuple):
    """A process of a world on this node, and the index of its row in the TurnTable."""

    world: int
    row: int
    pid: int


class TurnTable:
    """The numbers that a launch's worlds share on a node: who has the turn, who has seen it begin.

    The table's file is unlinked once all worlds have met, so that no file is left when they end.
    Raises UsageError if the file cannot be written.
    """

    # slots; then (expected, done) of each world, then the rows
    _serial, _holder, _broken, _worlds = range(4)

    def __init__(self, place: Place) -> None:
        self.place, self.worlds = place, len(place.sizes)
        self._path = table_path(place.launch)
        self._rows = self._worlds + 2 * self.worlds
        slots = self._rows + 2 * self.worlds * MOST_LOCAL
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.ftruncate(fd, 8 * slots)  # zeros, whoever comes first
                os.posix_fallocate(fd, 0, 8 * slots)  # a full memory is told here, not by SIGBUS
                self._numbers = memoryview(mmap.mmap(fd, 8 * slots)).cast("q")
            finally:
                os.close(fd)
        except OSError as error:
            wrong = f"{self._path} cannot be written ({error.strerror})"
            raise UsageError(f"{wrong}, which runs that take turns share; {_WAY_OUT}") from None

    def forget_name(self) -> None:
        """Unlink the table's file; processes that have opened the table keep it."""
        with suppress(OSError):
            self._path.unlink()

    @property
    def serial(self) -> int:
        """The number of turns that have begun."""
        return self._numbers[self._serial]

    @property
    def holder(self) -> int:
        """The index of the world that has the turn; EVERYBODY after all worlds' last turns."""
        return self._numbers[self._holder]

    @property
    def broken_by(self) -> int | None:
        """The index of the first world that ended early; None if no world did."""
        return self._numbers[self._broken] - 1 if self._numbers[self._broken] else None

    def give(self, world: int) -> None:
        """Begin the turn of `world`; EVERYBODY means that all turns are over."""
        self._numbers[self._holder] = world  # first: the serial says that there is a new holder
        self._numbers[self._serial] += 1

    def break_off(self, world: int) -> None:
        """Note `world` as the first that ended early, if none is noted; wake all processes."""
        self._numbers[self._broken] = self._numbers[self._broken] or world + 1
        self.forget_name()
        for _ in range(_WAKES):
            pids = (p.pid for world in range(self.worlds) for p in self.processes(world))
            signal_others(pids, signal.SIGCONT)
            time.sleep(_WAKES_APART_S)

    def register(self, world: int, local_rank: int, local_size: int) -> int:
        """Enter this process into the table, and return the index of its row."""
        row = self._rows + 2 * (world * MOST_LOCAL + local_rank)
        self._numbers[row] = os.getpid()
        self._numbers[self._worlds + 2 * world] = local_size
        return row

    def finish(self, world: int) -> None:
        """Note that the world of index `world` has had its last turn."""
        self._numbers[self._worlds + 2 * world + 1] = 1

    def next_after(self, world: int, present: Sequence[int]) -> int:
        """Return which world of `present` is next after `world`; EVERYBODY if all are done."""
        after = sorted(present, key=lambda other: (other <= world, other))
        is_done = {other: self._numbers[self._worlds + 2 * other + 1] for other in present}
        return next((other for other in after if not is_done[other]), EVERYBODY)

    def acknowledge(self, row: int, serial: int) -> None:
        """Record that the process of a row has seen turn `serial` begin."""
        self._numbers[row + 1] = serial

    def has_woken(self, process: Process, serial: int) -> bool:
        """Check whether a process has seen the turn `serial` begin."""
        return self._numbers[process.row + 1] >= serial

    def may_end(self, process: Process) -> bool:
        """Check whether a process has seen that all worlds had their last turns."""
        return self.holder == EVERYBODY and self.has_woken(process, self.serial)

    def is_complete(self, world: int) -> bool:
        """Check whether all processes that a world has on this node have entered the table."""
        return 0 < self._numbers[self._worlds + 2 * world] == len(self.processes(world))

    def processes(self, world: int) -> list[Process]:
        """List the processes of a world that have entered this node's table."""
        first = self._rows + 2 * world * MOST_LOCAL
        rows = range(first, first + 2 * self._numbers[self._worlds + 2 * world], 2)
        return [Process(world, row, pid) for row in rows if (pid := self._numbers[row])]


class TurnsBroken(Exception):
    """A failure of turns: a rank or world ended early, or the worlds did not meet in time."""


class Turns:
    """Interface of turns, and the turns of a world that was started alone.

    Such a world always has the turn, so here the methods do nothing. SharedTurns implements them.
    """

    place: Place | None = None

    def begin(self, barrier: Barrier) -> None:
        """Wait for the first turn, then for the world's ranks. Raises TurnsBroken, UsageError."""

    def pass_on(self, barrier: Barrier) -> None:
        """End the world's turn, and wait until its next turn begins. Raises TurnsBroken."""

    def end(self, barrier: Barrier) -> None:
        """End the world's last turn, and wait until every world is done. Raises TurnsBroken."""

    def break_off(self) -> None:
        """Tell all worlds that this process ends early, so that no process stays stopped."""

    def aside(self) -> Mapping[str, int]:
        """Return by how much each of the node's counters rose outside this world's turns so far."""
        return {}


ALONE = Turns()


class SharedTurns(Turns):
    """One process's part in the turns of several worlds.

    `counters` returns this process's and its node's clock ticks by name. The worlds of a node must
    meet within 80 % of `stall_timeout_s`, before the watchdog takes their waiting for a stall.
    """

    def __init__(
        self, table: TurnTable, launch: Launch, counters: Counters, stall_timeout_s: float
    ) -> None:
        self.place = table.place
        self._table, self._world, self._launch = table, table.place.turn, launch
        self._counters, self._meet_s = counters, _MEET * stall_timeout_s
        self._is_last = launch.local_rank == launch.local_size - 1
        before = launch.rank - launch.local_rank  # ranks on earlier nodes
        self._here = tuple(w for w, size in enumerate(table.place.sizes) if size > before)
        self._row: int | None = None
        self._serial = 0  # of the turn that this process last had
        self._is_over = False
        self._outside: dict[str, int] = {}
        self._since = counters()

    def begin(self, barrier: Barrier) -> None:
        launch, world = self._launch, self._world
        if launch.local_size > MOST_LOCAL:
            raise UsageError(f"{launch.local_size} ranks on a node: at most {MOST_LOCAL} of turns")
        self._row = self._table.register(world, launch.local_rank, launch.local_size)
        if self._is_last and self._world == self._here[0]:
            self._meet()
            self._give(self._world)
        self._stop_until_turn()
        barrier()

    def pass_on(self, barrier: Barrier) -> None:
        self._end_turn(barrier, is_last=False)

    def end(self, barrier: Barrier) -> None:
        self._end_turn(barrier, is_last=True)
        self._is_over = True

    def break_off(self) -> None:
        if not self._is_over:
            self._table.break_off(self._world)

    def aside(self) -> Mapping[str, int]:
        """Return the counts outside this world's turns, up to now; call this outside its turns."""
        now = self._counters()
        for name, count in now.items():
            before = self._since.get(name)
            if count is not None and before is not None:
                self._outside[name] = self._outside.get(name, 0) + count - before
        self._since = now
        return self._outside

    def _end_turn(self, barrier: Barrier, is_last: bool) -> None:
        """Give the turn away once all ranks have met; wait for the next (`is_last`: the end)."""
        barrier()
        self._since = self._counters()
        time.sleep(_SETTLE_S)
        if self._is_last:
            if is_last:
                self._table.finish(self._world)
            self._give(self._table.next_after(self._world, self._here))
        self._stop_until_turn()

    def _processes(self, worlds: Sequence[int]) -> list[Process]:
        return [process for world in worlds for process in self._table.processes(world)]

    def _meet(self) -> None:
        """Wait until all other processes of this node's worlds are stopped. Raises TurnsBroken."""
        limit_s = time.monotonic() + self._meet_s

        def all_stand_still() -> bool:
            if time.monotonic() > limit_s:
                which = f"the {len(self._here)} runs of the launch"
                wrong = f"{which} did not meet on this node within {self._meet_s:g} s"
                raise TurnsBroken(f"{wrong}; where they have a /dev/shm of their own, {_WAY_OUT}")
            others = [p for p in self._processes(self._here) if p.row != self._row]
            complete = all(map(self._table.is_complete, self._here))
            return complete and all(state(process.pid) == STOPPED for process in others)

        self._wait(all_stand_still)
        self._table.forget_name()

    def _give(self, world: int) -> None:
        """Begin the turn of `world` or EVERYBODY; signal its processes here until all are awake."""
        table = self._table
        table.give(world)
        serial = table.serial
        worlds = self._here if world == EVERYBODY else (world,)
        asleep = [p for p in self._processes(worlds) if p.row != self._row]

        def all_awake() -> bool:
            nonlocal asleep
            asleep = [p for p in asleep if not table.has_woken(p, serial)]
            self._require_alive(asleep)
            # again and again: the last one may have come before the stop
            signal_others([process.pid for process in asleep], signal.SIGCONT)
            return not asleep

        self._wait(all_awake)

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Poll until `ready()`, without a limit. Raises TurnsBroken if a world ended early."""
        while not ready():
            self._require_all()
            time.sleep(_POLL_S)

    def _require_all(self) -> None:
        if (world := self._table.broken_by) is None:
            return
        if world == self._world:
            raise TurnsBroken("another rank has ended before its time")
        which = f"world {world + 1} of the {self._table.worlds} that take turns"
        raise TurnsBroken(f"{which} has ended before its time")

    def _require_alive(self, processes: Sequence[Process]) -> None:
        """Break off the turns and raise TurnsBroken if a process ended while others needed it."""
        for process in processes:
            if state(process.pid) == ENDED and not self._table.may_end(process):
                self._table.break_off(process.world)
                self._require_all()

    def _stop_until_turn(self) -> None:
        loading = [child.pid for child in loading_processes()]
        signal_others(loading, signal.SIGSTOP)
        try:
            stop_at = 0.0
            while not self._takes_turn():
                if time.monotonic() < stop_at:
                    time.sleep(_POLL_S)
                    continue
                os.kill(os.getpid(), signal.SIGSTOP)
                # launchers continue a rank before SIGTERM, which must then be heard
                stop_at = time.monotonic() + _HEARD_S
        finally:
            signal_others(loading, signal.SIGCONT)
        self.aside()

    def _takes_turn(self) -> bool:
        """Return whether a new turn of this world or of EVERYBODY has begun; if so, take it."""
        self._require_all()
        table, row = self._table, self._row
        serial = table.serial
        if row is None or serial <= self._serial or table.holder not in (self._world, EVERYBODY):
            return False
        self._serial = serial
        table.acknowledge(row, serial)
        return True
