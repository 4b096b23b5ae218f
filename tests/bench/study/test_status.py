"""States of runs from their logs, counts, and estimates from what has finished."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from bench.record import append_event
from bench.study.plan import PlannedRun, plan
from bench.study.status import RunStatus, count, look, not_comparable, seconds_left, table
from tests.slurm.stand_in import complete, start
from tests.slurm.studies import small

EXIT = {"code": 1, "timed_out": False, "limit_s": 30, "interrupted": False, "wall_s": 4}


@pytest.fixture
def runs(tmp_path: Path) -> list[PlannedRun]:
    found = plan(small(tmp_path), 1, tmp_path / "runs")[0]
    (tmp_path / "runs").mkdir()
    return found


def test_a_run_without_an_end_runs_only_while_a_job_does(runs: list[PlannedRun]) -> None:
    start(runs[0].config)
    assert look(runs[1], True).state == look(runs[1], False).state == "planned"
    assert look(runs[0], job_is_running=True).state == "running"
    assert look(runs[0], job_is_running=False) == RunStatus(
        runs[0], "interrupted", "killed together with its job"
    )


def test_ok_with_and_without_the_launchers_line(runs: list[PlannedRun]) -> None:
    complete(runs[0].config)
    here = (socket.gethostname(),)
    assert look(runs[0], True) == RunStatus(runs[0], "ok", hosts=here)
    # stopped after its data were complete
    append_event(runs[0].log, "exit", **{**EXIT, "interrupted": True})
    assert look(runs[0], True) == RunStatus(runs[0], "ok", "", 4, here)


def test_the_last_words_of_every_rank_follow_the_reason(runs: list[PlannedRun]) -> None:
    start(runs[0].config)
    append_event(runs[0].log, "error", rank=1, message="RuntimeError: boom")
    append_event(runs[0].log, "error", rank=0, message="RuntimeError: Connection closed by peer")
    said = ["srun: error: r2: task 1: Exited with exit code 1"]
    append_event(runs[0].log, "exit", **EXIT, said=said)
    words = ("rank 1: RuntimeError: boom", "rank 0: RuntimeError: Connection closed by peer")
    status = look(runs[0], False)
    assert status == RunStatus(runs[0], "failed", f"exit code 1: {words[0]}", 4, words=words)
    row = (runs[0].id, "failed", f"4 s  exit code 1: {words[0]}", [words[1]])
    assert list(table([status])) == [row]


@pytest.mark.parametrize(
    ("job", "state"),
    [
        ("ended: NODE_FAIL", "node lost"),
        ("ended: OUT_OF_MEMORY", "out of memory"),
        ("vanished: it began and left no end", "interrupted"),
        ("ended: COMPLETED", "interrupted"),
        ("ended: complete", "interrupted"),
    ],
)
def test_a_run_that_went_with_its_job_is_never_ok(
    runs: list[PlannedRun], job: str, state: str
) -> None:
    start(runs[0].config)
    runs[1].log.with_suffix(".out").touch()
    reason = f"killed together with its job, which {job}"
    assert look(runs[0], False, job) == RunStatus(runs[0], state, reason)
    no_log = f"there is no log: deleted, or {reason}"
    assert look(runs[1], False, job) == RunStatus(runs[1], state, no_log)
    assert look(runs[2], False, job).state == "planned"


def test_timed_out_and_interrupted(runs: list[PlannedRun]) -> None:
    start(runs[0].config)
    append_event(runs[0].log, "exit", **{**EXIT, "code": 124, "timed_out": True})
    assert look(runs[0], True) == RunStatus(runs[0], "timed out", "timed out after 30 s", 4)
    start(runs[1].config).write("end", status="interrupted")
    assert look(runs[1], True).state == "interrupted"
    runs[2].log.write_text("\n" + json.dumps({"event": "exit", **EXIT, "interrupted": True}) + "\n")
    assert look(runs[2], True) == RunStatus(runs[2], "interrupted", "stopped", 4)


def test_a_log_of_another_run_is_not_ok(runs: list[PlannedRun]) -> None:
    complete(runs[0].config.model_copy(update={"seed": 99}))
    reason = "the log is of another run: seed=99, planned 7"
    assert look(runs[0], False) == RunStatus(runs[0], "failed", reason)


def test_counts_name_what_there_is(runs: list[PlannedRun]) -> None:
    states = ["ok", "ok", "failed", "planned", "planned", "planned", "timed out"]
    statuses = [RunStatus(run, state) for run, state in zip(runs, states, strict=True)]
    assert count(statuses) == "7 runs: 2 ok, 3 planned, 1 failed, 1 timed out"


def test_an_estimate_prefers_runs_of_the_same_point(tmp_path: Path) -> None:
    first, second = plan(small(tmp_path), 2, tmp_path)
    done = [
        RunStatus(first[0], "ok", "", 10),
        RunStatus(first[1], "ok", "", 20),
        RunStatus(first[2], "failed", "", 1000),
    ]
    same = next(run for run in second if run.point == first[1].point)
    other = next(run for run in second if run.point == first[3].point)
    assert seconds_left([same], done) == 20
    assert seconds_left([other], done) == 15
    assert seconds_left([same, other], done) == 35
    assert seconds_left([same], done[2:]) is None


def test_a_pair_of_two_allocations_is_done_again(runs: list[PlannedRun]) -> None:
    pairs = (("ddp/mpi", "horovod/gloo"),)
    pair = [run for run in runs if run.point.cell != "single" and run.point.world_size == 1]
    one = [RunStatus(run, "ok", allocation="job 8") for run in pair]
    assert (len(pair), not_comparable(one, pairs)) == (2, [])
    assert not_comparable([replace(one[0], allocation="job 9"), one[1]], pairs) == pair
