"""Turns: of several worlds on the same nodes one works at a time, while the others are stopped.

Separate launches of two worlds stand half a minute apart, and a shared machine changes more than
that between them. Worlds that live at the same time are measured window by window, a second apart
(after duet benchmarking: Bulej et al. 2020, and interleaved trials: Abedi & Brecht 2017).

A rank without the turn stops itself by SIGSTOP, with all of its threads and loading processes: a
blocking read would leave Horovod's engine and MPI's progress threads at work. On each node the last
local rank of the world whose turn ends continues the ranks of the next one. Nothing crosses nodes
but each world's own barriers. All that worlds share on a node is a table of numbers in its memory.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.config import RunConfig, UsageError
from bench.launch.together import Place, table_path, tables
from bench.launch.world import Launch
from bench.lifecycle.peers import ENDED, STOPPED, loading_processes, state

_MOST_LOCAL = 1024  # processes of a world on a node
_POLL_S = 0.001
_SETTLE_S = 0.002  # a byte that a library still holds would wait for a stopped sender
_HEARD_S = 0.5  # a signal that was sent to a stopped process is handled within it
_WAKES = 5  # of everybody by a rank that ends: a single signal may come just before the stop
_STALE_S = 86400.0

EVERYBODY = -1  # has the turn once every world has had its last

Barrier = Callable[[], None]
Counters = Callable[[], Mapping[str, int | None]]


class TurnsBroken(Exception):
    """A world that takes turns with this one has ended before its time."""


class _Process(NamedTuple):
    """A row of the table: a process of a world on this node."""

    row: int
    pid: int
    serves: bool


class Table:
    """What the worlds of a launch share on one node; each number has one writer at a time."""

    _serial, _holder, _broken, _worlds = 0, 1, 2, 3  # slots; then (expected, done) of each world

    def __init__(self, path: Path, worlds: int) -> None:
        self._rows = self._worlds + 2 * worlds
        slots = self._rows + 3 * worlds * _MOST_LOCAL
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, 8 * slots)  # zeros, whoever comes first
            self._numbers = memoryview(mmap.mmap(fd, 8 * slots)).cast("q")
        finally:
            os.close(fd)
        self.worlds = worlds

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
        self._numbers[self._broken] = self._numbers[self._broken] or world + 1

    def register(self, world: int, local_rank: int, local_size: int, serves: bool) -> int:
        """Enter this process; its row."""
        row = self._rows + 3 * (world * _MOST_LOCAL + local_rank)
        self._numbers[row + 1] = serves
        self._numbers[row] = os.getpid()
        self._numbers[self._worlds + 2 * world] = local_size
        return row

    def finish(self, world: int) -> None:
        self._numbers[self._worlds + 2 * world + 1] = 1

    def is_done(self, world: int) -> bool:
        return bool(self._numbers[self._worlds + 2 * world + 1])

    def acknowledge(self, row: int, serial: int) -> None:
        self._numbers[row + 2] = serial

    def has_woken(self, process: _Process, serial: int) -> bool:
        return self._numbers[process.row + 2] >= serial

    def is_complete(self, world: int) -> bool:
        """Whether all processes of a world on this node have entered."""
        expected = self._numbers[self._worlds + 2 * world]
        return 0 < expected == len(self.processes(world))

    def processes(self, world: int) -> list[_Process]:
        """Those of a world that have entered."""
        first = self._rows + 3 * world * _MOST_LOCAL
        expected = self._numbers[self._worlds + 2 * world]
        rows = (first + 3 * local for local in range(expected))
        entered = ((row, self._numbers[row], bool(self._numbers[row + 1])) for row in rows)
        return [_Process(*process) for process in entered if process[1]]


class Turns:
    """The turns of a world that was started alone: it always has them."""

    place: Place | None = None

    def enter(self) -> None:
        """This process is one that can be stopped from here on."""

    def begin(self, barrier: Barrier) -> None:
        """Return when the world's first turn begins; all of its ranks call this."""

    def pass_on(self, barrier: Barrier) -> None:
        """End the world's turn, and return when its next one begins."""

    def end(self, barrier: Barrier) -> None:
        """End the world's last turn, and return when every world has had its last."""

    def break_off(self) -> None:
        """This process ends before its time: nobody may stay stopped."""

    def aside(self) -> Mapping[str, int]:
        """Of the node's counters, what they counted outside this world's turns."""
        return {}


ALONE = Turns()


class SharedTurns(Turns):
    """One process's part in the turns of a launch of several worlds.

    `servers` of the world's local processes hold parameters and do not train: they stand behind
    those that do. `counters` reads what is to be told apart by turns.
    """

    def __init__(
        self, place: Place, launch: Launch, servers: int, serves: bool, counters: Counters
    ) -> None:
        self.place = place
        self._launch, self._serves, self._counters = launch, serves, counters
        self._is_last = launch.local_rank == launch.local_size - servers - 1
        _remove_stale()
        self._table = Table(table_path(place.launch), place.worlds)
        self._row: int | None = None
        self._serial = 0  # of the turn that this process last had
        self._is_over = False
        self._outside: dict[str, int] = {}
        self._since = counters()

    def enter(self) -> None:
        launch, world = self._launch, self._world
        if launch.local_size > _MOST_LOCAL:
            raise UsageError(f"{launch.local_size} ranks on a node: at most {_MOST_LOCAL} of turns")
        self._row = self._table.register(world, launch.local_rank, launch.local_size, self._serves)

    def begin(self, barrier: Barrier) -> None:
        self.enter()
        if self._is_last:
            self._stop_servers()
            if self._world == 0:
                self._wait(self._all_stand_still)
                self._give(0)
        self._stop_until_turn()
        barrier()

    def pass_on(self, barrier: Barrier) -> None:
        barrier()
        self._since = self._counters()
        time.sleep(_SETTLE_S)
        if self._is_last:
            self._give(self._next())
        self._stop_until_turn()

    def end(self, barrier: Barrier) -> None:
        barrier()
        self._since = self._counters()
        time.sleep(_SETTLE_S)
        if self._is_last:
            self._table.finish(self._world)
            self._give(self._next())
        self._stop_until_turn()
        self._is_over = True
        if self._is_last:
            with suppress(OSError):
                table_path(self._named.launch).unlink()

    def break_off(self) -> None:
        if self._is_over:
            return
        self._table.break_off(self._world)
        for _ in range(_WAKES):
            for world in range(self._table.worlds):
                _signal(self._table.processes(world), signal.SIGCONT)
            time.sleep(_POLL_S)

    def aside(self) -> Mapping[str, int]:
        self._count_outside()
        return self._outside

    @property
    def _named(self) -> Place:
        assert self.place is not None
        return self.place

    @property
    def _world(self) -> int:
        return self._named.turn

    def _next(self) -> int:
        """The world after this one that is not done; EVERYBODY where all are."""
        worlds = self._table.worlds
        after = [(self._world + step) % worlds for step in range(1, worlds + 1)]
        return next((world for world in after if not self._table.is_done(world)), EVERYBODY)

    def _all_stand_still(self) -> bool:
        """Whether every world is on this node and waits: none may start inside a turn."""
        worlds = range(self._table.worlds)
        if not all(map(self._table.is_complete, worlds)):
            return False
        others = [p for w in worlds for p in self._table.processes(w) if p.row != self._row]
        return all(state(process.pid) == STOPPED for process in others)

    def _stop_servers(self) -> None:
        """They wait for requests, and would poll for them in the others' turns."""
        self._wait(lambda: self._table.is_complete(self._world))
        servers = [p for p in self._table.processes(self._world) if p.serves]
        _signal(servers, signal.SIGSTOP)

    def _give(self, world: int) -> None:
        """Wake a world's processes on this node, until each rank has seen that it has the turn."""
        table = self._table
        if world not in (self._world, EVERYBODY):
            self._stop_servers()
        table.give(world)
        serial = table.serial
        worlds = range(table.worlds) if world == EVERYBODY else (world,)
        processes = [p for w in worlds for p in table.processes(w)]
        _signal(processes, signal.SIGCONT)
        asleep = [p for p in processes if not p.serves and p.row != self._row]

        def all_awake() -> bool:
            nonlocal asleep
            asleep = [p for p in asleep if not table.has_woken(p, serial)]
            if ended := [p.pid for p in asleep if state(p.pid) == ENDED]:
                raise TurnsBroken(f"process {ended[0]}, whose turn comes next, has ended")
            _signal(asleep, signal.SIGCONT)  # again: the last one may have come before the stop
            return not asleep

        self._wait(all_awake)

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Poll; the run's watchdog ends what takes longer than its limit."""
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

    def _stop_until_turn(self) -> None:
        loading = [child.pid for child in loading_processes()]
        _signal_pids(loading, signal.SIGSTOP)
        try:
            stop_at = 0.0
            while not self._takes_turn():
                if time.monotonic() >= stop_at:
                    os.kill(os.getpid(), signal.SIGSTOP)
                    # launchers continue a rank before SIGTERM, which must then be heard
                    stop_at = time.monotonic() + _HEARD_S
                else:
                    time.sleep(_POLL_S)
        finally:
            _signal_pids(loading, signal.SIGCONT)
        self._count_outside()

    def _takes_turn(self) -> bool:
        """Whether this process has a turn that it has not had yet, which it then has."""
        self._require_all()
        table, row = self._table, self._row
        serial = table.serial
        if row is None or serial <= self._serial or table.holder not in (self._world, EVERYBODY):
            return False
        self._serial = serial
        table.acknowledge(row, serial)
        return True

    def _count_outside(self) -> None:
        """Add what the counters counted since this world's turn ended."""
        now = self._counters()
        for name, count in now.items():
            before = self._since.get(name)
            if count is not None and before is not None:
                self._outside[name] = self._outside.get(name, 0) + count - before
        self._since = now


def _signal(processes: Sequence[_Process], number: signal.Signals) -> None:
    _signal_pids([process.pid for process in processes], number)


def _signal_pids(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        if pid != os.getpid():
            with suppress(OSError):  # it has ended
                os.kill(pid, number)


def _remove_stale() -> None:
    """Remove tables of launches that were killed whole, a day ago or earlier."""
    for path in tables():
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()


def turns_of(place: Place | None, launch: Launch, config: RunConfig, counters: Counters) -> Turns:
    """This process's turns: of a launch of several worlds, or all of them."""
    if place is None:
        return ALONE
    serves = launch.rank >= config.world_size
    return SharedTurns(place, launch, config.server_processes, serves, counters)
