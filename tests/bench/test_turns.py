"""The table that worlds on a node share, and what becomes of worlds that nobody looks after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.lifecycle import turns
from bench.lifecycle.peers import ENDED, STOPPED, state
from bench.lifecycle.turns import EVERYBODY, VARIABLE, Place, TurnTable, Waker, place_of
from bench.record import read_run
from tests.bench.ranks import ROOT, environment, mpirun
from tests.bench.test_faults import SPARE_S, left_behind, start, wait_for, words

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
    for wrong in ("abc 0", "abc 2 1,2", "abc 0 1,0", "abc 0 1,,2", "a/b 0 1,1"):
        with pytest.raises(UsageError, match=r"must be 'LAUNCH TURN SIZE,SIZE,\.\.\.'"):
            place_of({VARIABLE: wrong})


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


def test_memory_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SHARED_MEMORY", tmp_path / "none")
    with pytest.raises(UsageError, match=r"No such file.* turns = false into the study"):
        TurnTable(Place("abc", 0, (1, 1)))


def test_a_stopped_process_is_woken_by_its_own_timer() -> None:
    child = os.fork()
    if child == 0:
        try:
            waker = Waker(1)
            for stops in range(3):
                waker.set()
                if stops == 2:
                    waker.clear()
                os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            os._exit(0)
    for _ in range(3):
        assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]), "it goes on to its last stop"
    time.sleep(1.5)
    assert state(child) == STOPPED, "nothing wakes it any more"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_stopped_loading_process_ends_with_its_rank() -> None:
    code = """if True:
        import os, signal
        from bench.lifecycle.peers import end_with
        rank = os.getpid()
        if os.fork() == 0:
            end_with(rank)
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(-1, os.WUNTRACED)
        os.kill(rank, signal.SIGKILL)
    """
    mark = uuid.uuid4().hex
    env = environment({"FAULT_MARK": mark})
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, timeout=60)
    assert (done.returncode, left_behind(mark)) == (-signal.SIGKILL, [])


@pytest.mark.ranks
def test_the_stopped_world_ends_when_the_other_is_killed_whole(tmp_path: Path) -> None:
    """Without a driver, and with nobody left to wake it."""
    mark, launch, worlds = uuid.uuid4().hex, uuid.uuid4().hex, []
    logs = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    for turn, log in enumerate(logs):
        place = {VARIABLE: Place(launch, turn, (2, 2)).words, "FAULT_WORLD": "0"}
        command = mpirun(2, *words("held step", "ddp/gloo", log), "--stall-timeout-s", "600")
        worlds.append(start(command, log, mark, "held step", **place))
    wait_for(logs[0].with_suffix(".moment").exists, logs[0])
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
    assert not turns.table_path(launch).exists()
