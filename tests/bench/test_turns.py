"""The table that worlds on a node share, and what becomes of worlds that nobody looks after."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError
from bench.lifecycle import turns
from bench.lifecycle.peers import ENDED, STOPPED, state
from bench.lifecycle.turns import EVERYBODY, VARIABLE, Place, TurnTable, Waker, place_of, table_of
from bench.record import read_run
from tests.bench.ranks import ROOT, environment, mpirun
from tests.bench.test_faults import SPARE_S, TINY, left_behind, wait_for

LOOK_S = 30.0  # a stopped rank looks around so often


@pytest.fixture
def table() -> Iterator[TurnTable]:
    made = TurnTable(Place(uuid.uuid4().hex, 1, (2, 2, 1)))
    yield made
    made.forget_name()


def test_words_there_and_back() -> None:
    place = Place("abc", 1, (1, 2))
    assert place_of({VARIABLE: place.words}) == place
    assert place_of({}) is None


@pytest.mark.parametrize("words", ["abc 0", "abc 2 1,2", "abc 0 1,0", "abc 0 1,,2", "a/b 0 1,1"])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match=r"must be 'LAUNCH TURN SIZE,SIZE,\.\.\.'"):
        place_of({VARIABLE: words})


def test_turns_go_round_and_leave_out_who_is_done(table: TurnTable) -> None:
    assert [table.next_after(world, (0, 1, 2)) for world in range(3)] == [1, 2, 0]
    assert [table.next_after(world, (0, 1)) for world in range(2)] == [1, 0]
    table.finish(1)
    assert [table.next_after(world, (0, 1, 2)) for world in range(3)] == [2, 2, 0]
    table.finish(2)
    assert table.next_after(0, (0, 1, 2)) == 0, "it has windows left"
    table.finish(0)
    assert table.next_after(0, (0, 1, 2)) == EVERYBODY


def test_a_world_is_there_when_all_its_processes_are(table: TurnTable) -> None:
    assert not table.is_complete(0)
    row = table.register(0, 0, 2)
    assert not table.is_complete(0)
    table.register(0, 1, 2)
    assert table.is_complete(0)
    assert [p.pid for p in table.processes(0)] == [os.getpid()] * 2
    rank, _ = table.processes(0)
    table.give(EVERYBODY)
    assert not table.may_end(rank)
    table.acknowledge(row, table.serial)
    assert table.may_end(rank)


def test_all_see_one_table_and_the_first_who_breaks_off_counts(table: TurnTable) -> None:
    other = TurnTable(table.place)
    table.break_off(1)
    other.break_off(0)
    assert (table.broken_by, other.broken_by) == (1, 1)


def test_worlds_in_other_process_namespaces_are_refused(table: TurnTable) -> None:
    table._numbers[table._namespace] += 1  # as if another had come first
    with pytest.raises(UsageError, match=r"process-id namespaces.* turns = false"):
        table_of({VARIABLE: table.place.words})


def test_memory_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SHARED_MEMORY", tmp_path / "none")
    with pytest.raises(UsageError, match=r"No such file.* turns = false into the study"):
        table_of({VARIABLE: "abc 0 1,1"})


def test_a_stopped_process_is_woken_by_its_own_timer() -> None:
    waker = Waker(1)
    child = os.fork()
    if child == 0:  # timers are not inherited
        try:
            own = Waker(1)
            own.set()
            os.kill(os.getpid(), signal.SIGSTOP)
            own.clear()
            os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            os._exit(0)
    waker.set()  # this process runs: it takes no notice
    stops = 0
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and stops < 2:
        _, status = os.waitpid(child, os.WUNTRACED)
        stops += os.WIFSTOPPED(status)
    time.sleep(2)
    assert stops == 2, "it went on to its second stop"
    assert state(child) == STOPPED, "nothing wakes it any more"
    waker.clear()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.ranks
def test_the_stopped_world_ends_when_the_other_is_killed_whole(tmp_path: Path) -> None:
    """Without a driver, and with nobody left to wake it."""
    mark, place = uuid.uuid4().hex, Place(uuid.uuid4().hex, 0, (2, 2))
    told = {"FAULT": "held step", "FAULT_WORLD": "0", "FAULT_AT": str(tmp_path / "moment")}
    logs = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    worlds = []
    for turn, log in enumerate(logs):
        extra = {**told, "FAULT_MARK": mark, VARIABLE: Place(place.launch, turn, place.sizes).words}
        words = ["-m", "bench", *TINY, "--warmup-steps", "3", "--backend", "ddp"]
        words += ["--transport", "gloo", "--world-size", "2", "--log-path", str(log)]
        own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True, "cwd": ROOT}
        with log.with_suffix(".out").open("wb") as out:
            command = mpirun(2, *words)
            env = environment(extra)
            worlds.append(subprocess.Popen(command, env=env, stdout=out, stderr=out, **own))
    wait_for((tmp_path / "moment").exists, logs[0])
    running, stopped = ([r["pid"] for r in read_run(log).host["ranks"]] for log in logs)
    wait_for(lambda: all(state(pid) == STOPPED for pid in stopped), logs[1])
    for pid in (worlds[0].pid, *running):
        os.kill(pid, signal.SIGKILL)
    assert worlds[0].wait(SPARE_S) == -signal.SIGKILL
    assert worlds[1].wait(2 * LOOK_S + SPARE_S) != 0
    assert all(state(pid) == ENDED for pid in stopped)
    problem = read_run(logs[1]).problem or ""
    assert "TurnsBroken: world 1 of the 2 that take turns has ended before its time" in problem
    assert left_behind(mark) == []
    assert not turns.table_path(place.launch).exists()
