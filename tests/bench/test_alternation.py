"""Worlds that take turns, watched from outside: in their logs, and in the kernel's own account of
their processes, they work one at a time.
"""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby, product
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.lifecycle.turns import EVERYBODY, VARIABLE, Place, TurnTable
from bench.record import Run, read_run
from tests.bench.ranks import ROOT, environment, mpirun

pytestmark = pytest.mark.ranks

WINDOWS = 4
TINY = ["-m", "bench", "--model", "tests.bench.tiny:plain", "--dataset", "digits"]
TINY += ["--image-size", "32", "--batch-per-rank", "16", "--warmup-steps", "40"]
TINY += ["--windows", str(WINDOWS), "--steps-per-window", "60", "--world-size", "2"]
TINY += ["--lead-in-steps", "2", "--num-workers", "2"]
LIMIT_S = 300.0  # of a launch on a machine that does much else
LOOK_S = 0.005
FEW = 10  # looks at a turn that tell nothing of it
CELLS = ["ddp/mpi", "horovod/mpi"]


class Process(NamedTuple):
    """One of a world's; `kind`: rank or loading."""

    world: int
    kind: str
    pid: int


class Look(NamedTuple):
    """What was so at one moment of one turn: `spent` is processor time, in the kernel's ticks."""

    serial: int
    holder: int
    windows: tuple[int, ...]
    state: dict[Process, str]
    spent: dict[Process, int]


@dataclass(frozen=True)
class Watched:
    """A launch that has ended, and all looks at it."""

    worlds: int
    processes: list[Process]
    looks: list[Look]
    runs: list[Run]

    def turns(self) -> list[list[Look]]:
        """Group the looks by turn, and keep the turns that have enough of them."""
        turns = [list(looks) for _, looks in groupby(self.looks, lambda look: look.serial)]
        long = [turn for turn in turns if len(turn) >= FEW]
        assert len(long) > self.worlds * WINDOWS / 2, "too few looks to tell anything"
        return long


def stat(pid: int) -> list[str]:
    """Read the fields of proc(5) for a process, from the third one, the state, on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def loading(ranks: list[Process]) -> Iterator[Process]:
    """Yield children of ranks that multiprocessing has started to load data."""
    world = {rank.pid: rank.world for rank in ranks}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent, words = int(stat(int(folder.name))[1]), (folder / "cmdline").read_text()
        except OSError:
            continue
        if parent in world and "spawn_main" in words:
            yield Process(world[parent], "loading", int(folder.name))


def of_the_launch(table: TurnTable) -> list[Process]:
    found = chain.from_iterable(map(table.processes, range(table.worlds)))
    known = [Process(p.world, "rank", p.pid) for p in found]
    return [*known, *loading(known)]


def windows(log: Path) -> int:
    return log.read_bytes().count(b'{"event": "window"')


def look(table: TurnTable, logs: list[Path], processes: list[Process]) -> Look | None:
    """Look at turn, logs and processes; None where the turn or the logs changed meanwhile."""
    serial, holder = table.serial, table.holder
    counts = tuple(map(windows, logs))
    try:
        stats = {process: stat(process.pid) for process in processes}
    except OSError:  # one has ended, as all do after the last turn
        return None
    if (table.serial, holder) != (serial, table.holder) or counts != tuple(map(windows, logs)):
        return None
    state = {process: fields[0] for process, fields in stats.items()}
    spent = {process: int(fields[11]) + int(fields[12]) for process, fields in stats.items()}
    return Look(serial, holder, counts, state, spent)


def watch(cells: list[str], folder: Path) -> Watched:
    """Start the worlds as the driver does, and look at them until all windows are done."""
    table = TurnTable(Place(uuid.uuid4().hex, 0, (2,) * len(cells)))
    logs = [folder / f"{turn}.jsonl" for turn in range(len(cells))]
    processes: list[Process] = []
    worlds, looks = [], []
    deadline = time.monotonic() + LIMIT_S
    try:
        for turn, (cell, log) in enumerate(zip(cells, logs, strict=True)):
            backend, transport = cell.split("/")
            words = ["--backend", backend, "--transport", transport, "--log-path", str(log)]
            command = mpirun(2, *TINY, *words)
            env = environment({VARIABLE: replace(table.place, turn=turn).words})
            with log.with_suffix(".out").open("wb") as out:
                worlds.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out))
        while table.holder != EVERYBODY:
            said = [log.with_suffix(".out").read_text() for log in logs]
            ended = {world.poll() for world in worlds} != {None}
            assert not ended or table.holder == EVERYBODY, said
            assert time.monotonic() < deadline, said
            time.sleep(LOOK_S)
            if table.serial:
                processes = processes or of_the_launch(table)
                found = look(table, logs, processes)
                looks += [found] if found is not None and found.holder != EVERYBODY else []
        assert [world.wait(LIMIT_S) for world in worlds] == [0] * len(worlds)
    finally:
        table.break_off(0)
        for world in worlds:
            if world.poll() is None:
                world.send_signal(signal.SIGTERM)
                world.wait(30)
    return Watched(len(cells), processes, looks, list(map(read_run, logs)))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return watch(CELLS, tmp_path_factory.mktemp("launch"))


def test_windows_alternate(watched: Watched) -> None:
    """Whenever one looks, no world is a window behind a later one or two behind an earlier one."""
    seen = [look.windows for look in watched.looks]
    allowed = {
        (done + 1,) * turn + (done,) * (watched.worlds - turn)
        for done, turn in product(range(WINDOWS + 1), range(watched.worlds))
    }
    assert set(seen) <= allowed
    assert len(set(seen)) > watched.worlds * WINDOWS / 2, "too few looks to tell anything"
    assert seen == sorted(seen)
    assert [len(run.windows) for run in watched.runs] == [WINDOWS] * watched.worlds
    assert [run.end["status"] for run in watched.runs] == ["ok"] * watched.worlds
    for run in watched.runs:
        assert [len(window[0]) for window in run.steps("lead_in")] == [2] * WINDOWS
        assert [len(window[0]) for window in run.steps("window")] == [60] * WINDOWS


def test_the_warm_up_takes_two_turns_and_each_window_one(watched: Watched) -> None:
    """So no window follows the long stop in which the other worlds warm up."""
    for look in watched.looks:
        window = (look.serial - 1) // watched.worlds - 2
        done = look.windows[look.holder]
        assert done in ({window, window + 1} if window >= 0 else {0}), look


def test_who_has_no_turn_is_stopped_and_takes_no_time(watched: Watched) -> None:
    """Ranks and loading processes, in the second half of each turn."""
    kinds = {(p.world, p.kind) for p in watched.processes}
    assert kinds == set(product(range(watched.worlds), ["rank", "loading"]))
    for turn in watched.turns():
        later = turn[len(turn) // 2 :]  # a busy machine takes a while to stop all threads
        holder = turn[0].holder
        for process in watched.processes:
            if process.world != holder:
                seen = [(look.state[process], look.spent[process]) for look in later]
                what = f"{process} in turn {turn[0].serial}, world {holder}'s: {seen}"
                assert {state for state, _ in seen} == {"T"}, what
                assert len({spent for _, spent in seen}) == 1, what


def test_who_has_the_turn_works(watched: Watched) -> None:
    """Else standing still would prove nothing. Over all its turns: in one of them, a busy machine
    may give a rank less than a tick.
    """
    turns = watched.turns()
    for process in watched.processes:
        if process.kind == "rank":
            spent = [
                turn[-1].spent[process] - turn[0].spent[process]
                for turn in turns
                if turn[0].holder == process.world
            ]
            assert sum(spent) > 0, (process, spent)
