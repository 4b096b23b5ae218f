"""Turns: of several worlds on the same nodes one works at a time, while the others are stopped.

Separate launches of two worlds stand half a minute apart, and a shared machine changes more than
that between them. Worlds that live at the same time are measured window by window, a second apart
(after duet benchmarking: Bulej et al. 2020, and interleaved trials: Abedi & Brecht 2017).

A rank without the turn stops itself by SIGSTOP, with all of its threads and loading processes: a
blocking read would leave Horovod's engine and MPI's progress threads at work. On each node the last
local rank of the world whose turn ends continues the ranks of the next one. Nothing crosses nodes
but each world's own barriers. All that worlds share on a node is a table (turn_table.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from bench.config import RunConfig, UsageError
from bench.launch.world import Launch
from bench.lifecycle.peers import ENDED, STOPPED, loading_processes, signal_others, state
from bench.lifecycle.turn_table import EVERYBODY, MOST_LOCAL, WAY_OUT, Place, Process, TurnTable
from bench.lifecycle.waking import Waker

_POLL_S = 0.001
_SETTLE_S = 0.002  # a byte that a library still holds would wait for a stopped sender
_HEARD_S = 0.5  # a signal that was sent to a stopped process is handled within it
_LOOK_S = 30  # a process that is stopped looks this often whether its turn can still come
_MEET = 0.8  # of the stall limit: time for the worlds of a node to find one another

Barrier = Callable[[], None]
Counters = Callable[[], Mapping[str, int | None]]


class TurnsBroken(Exception):
    """A world that takes turns with this one has ended before its time."""


class Turns:
    """The turns of a world that was started alone: it always has them."""

    place: Place | None = None

    def begin(self, barrier: Barrier) -> None:
        """Return when the world's first turn begins; all of its ranks call this."""

    def pass_on(self, barrier: Barrier) -> None:
        """End the world's turn, and return when its next one begins."""

    def end(self, barrier: Barrier) -> None:
        """End the world's last turn, and return when every world has had its last."""

    def break_off(self) -> None:
        """Tell that this process ends before its time, so that nobody stays stopped."""

    def aside(self) -> Mapping[str, int]:
        """Return what the node's counters counted outside this world's turns."""
        return {}


ALONE = Turns()


class SharedTurns(Turns):
    """One process's part in the turns of a launch of several worlds.

    `counters` reads what is to be told apart by turns. The worlds of a node must
    meet within `meet_s`.
    """

    def __init__(
        self,
        table: TurnTable,
        launch: Launch,
        counters: Counters,
        meet_s: float,
    ) -> None:
        self.place = table.place
        self._table, self._world, self._launch = table, table.place.turn, launch
        self._counters, self._meet_s = counters, meet_s
        self._is_last = launch.local_rank == launch.local_size - 1
        before = launch.rank - launch.local_rank  # ranks on earlier nodes
        self._here = tuple(w for w, size in enumerate(table.place.sizes) if size > before)
        self._waker = Waker(_LOOK_S)
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
        self._stop_until_turn()

    def end(self, barrier: Barrier) -> None:
        self._end_turn(barrier, is_last=True)
        self._stop_until_turn()
        self._is_over = True

    def break_off(self) -> None:
        if self._is_over:
            return
        self._table.break_off(self._world)

    def aside(self) -> Mapping[str, int]:
        self._count_outside()
        return self._outside

    def _end_turn(self, barrier: Barrier, is_last: bool) -> None:
        """Give the turn away, once all of the world's ranks have come here."""
        barrier()
        self._since = self._counters()
        time.sleep(_SETTLE_S)
        if self._is_last:
            if is_last:
                self._table.finish(self._world)
            self._give(self._table.next_after(self._world, self._here))

    def _processes(self, worlds: Sequence[int]) -> list[Process]:
        return [process for world in worlds for process in self._table.processes(world)]

    def _meet(self) -> None:
        """Wait until every world is on this node and stands still: none starts inside a turn."""
        limit_s = time.monotonic() + self._meet_s

        def all_stand_still() -> bool:
            if time.monotonic() > limit_s:
                which = f"the {len(self._here)} runs of the launch"
                wrong = f"{which} did not meet on this node within {self._meet_s:g} s"
                raise TurnsBroken(f"{wrong}; where they have a /dev/shm of their own, {WAY_OUT}")
            if not all(map(self._table.is_complete, self._here)):
                return False
            others = [p for p in self._processes(self._here) if p.row != self._row]
            return all(state(process.pid) == STOPPED for process in others)

        self._wait(all_stand_still)
        self._table.forget_name()

    def _give(self, world: int) -> None:
        """Wake a world's processes on this node, until each rank has seen that it has the turn."""
        table = self._table
        table.give(world)
        serial = table.serial
        worlds = self._here if world == EVERYBODY else (world,)
        processes = self._processes(worlds)
        _signal(processes, signal.SIGCONT)
        asleep = [p for p in processes if p.row != self._row]

        def all_awake() -> bool:
            nonlocal asleep
            asleep = [p for p in asleep if not table.has_woken(p, serial)]
            self._require_alive(asleep)
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

    def _require_alive(self, processes: Sequence[Process]) -> None:
        """Find who was killed, and so could not break off: a turn would not come any more."""
        for process in processes:
            if state(process.pid) == ENDED and not self._table.may_end(process):
                self._table.break_off(process.world)
                self._require_all()

    def _stop_until_turn(self) -> None:
        loading = [child.pid for child in loading_processes()]
        signal_others(loading, signal.SIGSTOP)
        self._waker.set()
        try:
            stop_at = 0.0
            while not self._takes_turn():
                if time.monotonic() < stop_at:
                    time.sleep(_POLL_S)
                    continue
                if stop_at:
                    self._require_alive(self._processes(self._here))
                os.kill(os.getpid(), signal.SIGSTOP)
                # launchers continue a rank before SIGTERM, which must then be heard; after the
                # waker's signal, the watchdog looks for the launcher
                stop_at = time.monotonic() + _HEARD_S
        finally:
            self._waker.clear()
            signal_others(loading, signal.SIGCONT)
        self._count_outside()

    def _takes_turn(self) -> bool:
        """Take the turn that this process has not had yet; return whether there was one."""
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


def _signal(processes: Sequence[Process], number: signal.Signals) -> None:
    signal_others([process.pid for process in processes], number)


def turns_of(
    table: TurnTable | None, launch: Launch, config: RunConfig, counters: Counters
) -> Turns:
    """Choose this process's turns: shared in a launch of several worlds, else always its own."""
    if table is None:
        return ALONE
    meet_s = _MEET * config.stall_timeout_s
    return SharedTurns(table, launch, counters, meet_s)
