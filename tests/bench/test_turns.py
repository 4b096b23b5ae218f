"""The table that worlds on a node share, and a loading process whose stopped rank is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.launch.world import Launch
from bench.lifecycle import turns
from bench.lifecycle.turns import EVERYBODY, VARIABLE, Place, SharedTurns, TurnTable, place_of
from tests.bench.ranks import ROOT, environment
from tests.bench.test_faults import left_behind


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


def test_what_is_counted_outside_the_turns_of_a_world_adds_up(table: TurnTable) -> None:
    counts: Iterator[dict[str, int | None]]
    counts = iter([{"busy": 10, "stolen": None}, {"busy": 15}, {"busy": 40, "stolen": 2}])
    own = SharedTurns(table, Launch("mpirun", 0, 1, 0, 1, "test"), lambda: next(counts), 60)
    assert own.aside() == {"busy": 5}
    assert own.aside() == {"busy": 30}, "what could not be read before counts for nothing"


def test_memory_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SHARED_MEMORY", tmp_path / "none")
    with pytest.raises(UsageError, match=r"No such file.* turns = false into the study"):
        TurnTable(Place("abc", 0, (1, 1)))


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
