"""Worlds that take turns, watched from outside: in their logs, and in the kernel's own account of
their processes, they work one at a time.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, product
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
WORLDS = len(CELLS)


class Process(NamedTuple):
    """One of a world's; `kind`: rank or loading."""

    world: int
    kind: str
    pid: int


class Look(NamedTuple):
    """What was so at one moment of one turn: state and processor time, in the kernel's ticks."""

    serial: int
    holder: int
    windows: tuple[int, ...]
    seen: dict[Process, tuple[str, int]]


@dataclass(frozen=True)
class Watched:
    """A launch that has ended, and all looks at it."""

    processes: list[Process]
    looks: list[Look]
    runs: list[Run]


def stat(pid: int) -> list[str]:
    """Read the fields of proc(5) for a process, from the third one, the state, on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def of_the_launch(table: TurnTable) -> Iterator[Process]:
    """Yield the ranks, and their children that multiprocessing has started to load data."""
    world_of = {p.pid: p.world for world in range(WORLDS) for p in table.processes(world)}
    yield from (Process(world, "rank", pid) for pid, world in world_of.items())
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent, words = int(stat(int(folder.name))[1]), (folder / "cmdline").read_text()
        except OSError:
            continue
        if parent in world_of and "spawn_main" in words:
            yield Process(world_of[parent], "loading", int(folder.name))


def look(table: TurnTable, logs: list[Path], processes: list[Process]) -> Look | None:
    """Look at turn, logs and processes; None where the turn or the logs changed meanwhile."""

    def moment() -> tuple[int, int, tuple[int, ...]]:
        windows = tuple(log.read_bytes().count(b'{"event": "window"') for log in logs)
        return table.serial, table.holder, windows

    before = moment()
    try:
        stats = {process: stat(process.pid) for process in processes}
    except OSError:  # one has ended, as all do after the last turn
        return None
    seen = {p: (fields[0], int(fields[11]) + int(fields[12])) for p, fields in stats.items()}
    return None if before != moment() or before[1] == EVERYBODY else Look(*before, seen)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Start the worlds as the driver does, and look at them until all windows are done."""
    folder = tmp_path_factory.mktemp("launch")
    table = TurnTable(Place(uuid.uuid4().hex, 0, (2,) * WORLDS))
    logs = [folder / f"{turn}.jsonl" for turn in range(WORLDS)]
    processes: list[Process] = []
    worlds: list[subprocess.Popen[bytes]] = []
    looks: list[Look] = []
    deadline = time.monotonic() + LIMIT_S
    try:
        for turn, (cell, log) in enumerate(zip(CELLS, logs, strict=True)):
            backend, transport = cell.split("/")
            words = ["--backend", backend, "--transport", transport, "--log-path", str(log)]
            env = environment({VARIABLE: replace(table.place, turn=turn).words})
            with log.with_suffix(".out").open("wb") as out:
                command = mpirun(2, *TINY, *words)
                worlds.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out))
        while table.holder != EVERYBODY:
            ended = {world.poll() for world in worlds} != {None} and table.holder != EVERYBODY
            if ended or time.monotonic() > deadline:
                pytest.fail("\n".join(log.with_suffix(".out").read_text() for log in logs))
            time.sleep(LOOK_S)
            if table.serial:
                processes = processes or [*of_the_launch(table)]
                looks += filter(None, [look(table, logs, processes)])
        assert [world.wait(LIMIT_S) for world in worlds] == [0] * WORLDS
        yield Watched(processes, looks, list(map(read_run, logs)))
    finally:
        table.break_off(0)
        for world in worlds:
            world.terminate()
            world.wait(30)


def test_windows_alternate(watched: Watched) -> None:
    """Whenever one looks, no world is a window behind a later one or two behind an earlier one."""
    seen = [look.windows for look in watched.looks]
    turns = product(range(WINDOWS + 1), range(WORLDS))
    assert {*seen} <= {(done + 1,) * turn + (done,) * (WORLDS - turn) for done, turn in turns}
    assert len({*seen}) > WORLDS * WINDOWS / 2, "too few looks to tell anything"
    assert seen == sorted(seen)
    for run in watched.runs:
        assert (len(run.windows), run.end["status"]) == (WINDOWS, "ok")
        assert [len(window[0]) for window in run.steps("lead_in")] == [2] * WINDOWS
        assert [len(window[0]) for window in run.steps("window")] == [60] * WINDOWS


def test_the_warm_up_takes_two_turns_and_each_window_one(watched: Watched) -> None:
    """So no window follows the long stop in which the other worlds warm up."""
    for look in watched.looks:
        window = (look.serial - 1) // WORLDS - 2
        done = look.windows[look.holder]
        assert done in ({window, window + 1} if window >= 0 else {0}), look


def test_who_has_no_turn_is_stopped_and_takes_no_time(watched: Watched) -> None:
    """Ranks and loading processes, in the second half of each turn; who has it works."""
    kinds = {(p.world, p.kind) for p in watched.processes}
    assert kinds == {*product(range(WORLDS), ["rank", "loading"])}
    turns = [list(looks) for _, looks in groupby(watched.looks, lambda look: look.serial)]
    turns = [turn for turn in turns if len(turn) >= FEW]
    assert len(turns) > WORLDS * WINDOWS / 2, "too few looks to tell anything"
    worked = dict.fromkeys(watched.processes, 0)
    for turn in turns:
        later = turn[len(turn) // 2 :]  # a busy machine takes a while to stop all threads
        for process in watched.processes:
            seen = [look.seen[process] for look in later]
            if process.world == turn[0].holder:
                worked[process] += turn[-1].seen[process][1] - turn[0].seen[process][1]
            else:
                # R, if it takes no time: it stops as soon as it gets a core
                assert {state for state, _ in seen} <= {"T", "R"}, (process, turn[0].serial, seen)
                assert len({spent for _, spent in seen}) == 1, (process, turn[0].serial, seen)
    assert all(spent for process, spent in worked.items() if process.kind == "rank"), worked
