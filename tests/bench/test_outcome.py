"""One state for every way a run can end, judged from events and what launchers really print."""

from __future__ import annotations

from typing import Any

import pytest

from bench.launch.world import WrongWorld
from bench.record.outcome import RunOutcome, judge

START = {"event": "start"}
DONE = {"event": "end", "status": "ok"}
FAILED = {"event": "end", "status": "failed: x"}
STOPPED = {"event": "end", "status": "interrupted", "signal": "SIGTERM"}

# As printed: Slurm 22.05 to 25.05 with cgroups, with a limit of its own, on a lost node; Open MPI
# 5.0.11 and 4.1; C++.
MEMORY = [
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1054.0. Some of the step tasks have "
    "been OOM Killed.",
    "[2026-09-21T10:00:00.123] error: Detected 2 oom_kill events in StepId=7.0. Some of the step "
    "tasks have been OOM Killed.",
    "slurmstepd: error: StepId=7.0 exceeded memory limit (734003200 > 52428800), being killed",
    "slurmstepd-r1: error: Exceeded job memory limit",
    "srun: error: r[1-2]: tasks 0-1: Out Of Memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
]
LOST = [
    "srun: error: Node failure on r2",
    "slurmstepd: error: *** STEP 7.0 ON r1 CANCELLED AT 2026-09-21T03:17:51 DUE TO NODE FAILURE, "
    "SEE SLURMCTLD LOG FOR DETAILS ***",
    "PRTE has lost communication with a remote daemon.",
]
CANCELLED = "slurmstepd: error: *** STEP 7.0 ON r1 CANCELLED AT 2026-09-21T10:00:00 ***"
SRUN_KILLED = [
    "srun: error: r2: task 1: Killed",
    "srun: error: r1: task 0: Exited with exit code 1",
]
NOTICED = "prterun noticed that process rank 1 with PID 6376 on node r2 exited on"
KILLED = [NOTICED, "signal 9 (Killed)."]
LEFT = ["   Process name: [prterun-r1-6379@1,1]", "   Exit code:    3"]


def error(message: str, rank: int = 1, **more: str) -> dict[str, Any]:
    return {"event": "error", "rank": rank, "message": message, **more}


def left(code: int, said: list[str] | None = None, **more: object) -> dict[str, Any]:
    facts = {"timed_out": False, "limit_s": 60, "interrupted": False, "wall_s": 4}
    return {"event": "exit", "code": code, "said": said or [], **facts, **more}


def judged(*events: dict[str, Any]) -> RunOutcome:
    verdict = judge([START, *events])
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("line", MEMORY)
def test_out_of_memory_by_what_was_printed(line: str) -> None:
    verdict = judged(left(137, [CANCELLED, line]))
    assert (verdict.state, verdict.reason) == ("out of memory", line)


@pytest.mark.parametrize(
    "message",
    [
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
        "capacity of 79.11 GiB",
        "AcceleratorError: CUDA error: out of memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to ",
        "_ArrayMemoryError: Unable to allocate 7.28 TiB for an array",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
)
def test_out_of_memory_by_a_ranks_own_error(message: str) -> None:
    peer = error("RuntimeError: Connection closed by peer [127.0.0.1]:4711", 0)
    for errors in ([error(message), peer], [peer, error(message)]):  # whoever gets to the log first
        verdict = judged(*errors, FAILED, left(1))
        assert (verdict.state, verdict.reason) == ("out of memory", f"rank 1: {message}")


@pytest.mark.parametrize("line", LOST)
@pytest.mark.parametrize("facts", [{}, {"interrupted": True}, {"timed_out": True}])
def test_node_lost(line: str, facts: dict[str, object]) -> None:
    """Whether its loss is noticed, ends the job, or lets a run wait until its limit."""
    verdict = judged(error("RuntimeError: lost", 0), STOPPED, left(143, [line], **facts))
    assert (verdict.state, verdict.reason) == ("node lost", line)


def test_many_ranks_stay_few_lines() -> None:
    verdict = judged(*(error(f"boom {rank}", rank) for rank in range(100)), left(1))
    assert verdict.words == tuple(f"rank {rank}: boom {rank}" for rank in range(8))
    verdict = judged(*(error("boom", rank) for rank in (2, 0)), left(1, SRUN_KILLED))
    assert verdict.words == ("rank 2: boom",)


WRONG = "srun started 2 ranks, but MPI sees a world of 1"
REFUSED = error(WRONG, 0, type=WrongWorld.__name__)
LATE = error("1 of 2 ranks appeared", 0, type=WrongWorld.__name__)  # as one has failed before
GONE = {"event": "end", "status": "interrupted", "reason": "its launcher is gone"}
OOM = {"oom_kills": 1}
LACK = "killed, and the kernel killed 1 process(es) for lack of memory"
SOUNDS = ["bloom_kills nothing", "UNCORRECTABLE MEMORY ERROR", "a memory limit of 3 GiB"]


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ([], "running", "no end event: killed or still running"),
        ([DONE, left(0)], "ok", ""),
        ([DONE, left(139, MEMORY)], "ok", ""),  # a crash after complete data
        ([DONE, left(143, interrupted=True)], "ok", ""),
        ([DONE, error("boom"), left(1)], "failed", "exit code 1: rank 1: boom"),
        ([REFUSED, FAILED, left(2)], "wrong world", f"rank 0: {WRONG}"),
        ([error("ImportError: x"), LATE, left(1)], "failed", "exit code 1: rank 1: ImportError: x"),
        ([left(124, [CANCELLED], timed_out=True)], "timed out", "timed out after 60 s"),
        ([STOPPED], "interrupted", "stopped by SIGTERM"),
        ([STOPPED, left(143, interrupted=True)], "interrupted", "stopped by SIGTERM"),
        ([error("x"), left(143, interrupted=True)], "interrupted", "stopped"),
        ([GONE], "interrupted", "stopped: its launcher is gone"),
        ([STOPPED, left(137, KILLED)], "failed", f"exit code 137: {' '.join(KILLED)}"),
        ([left(0)], "failed", "exit code 0: no end event"),  # srun, which could not start ranks
        ([FAILED, left(1)], "failed", "exit code 1: x"),
        ([left(3, LEFT)], "failed", f"exit code 3: {' '.join(LEFT)}"),
        (
            [left(2, ["error: no data", "mpirun: rank 0 left"])],
            "failed",
            "exit code 2: error: no da",
        ),
        ([left(1, SOUNDS)], "failed", "exit code 1: bloom"),
        # a kill without a word while the kernel lacked memory
        ([STOPPED, left(137, KILLED, **OOM)], "out of memory", f"exit code 137: {LACK}"),
        ([STOPPED, left(1, SRUN_KILLED, **OOM)], "out of memory", f"exit code 1: {LACK}"),
        ([STOPPED, left(1, LEFT, **OOM)], "failed", "exit code 1: "),  # some other process
        ([STOPPED, left(137, KILLED, **OOM, timed_out=True)], "timed out", "timed out"),
        ([STOPPED, left(137, KILLED, **OOM, interrupted=True)], "interrupted", "stopped"),
        ([left(137, partner="b")], "failed", "ended with b, the run that it took turns with"),
    ],
)
def test_every_other_end(events: list[dict[str, Any]], state: str, reason: str) -> None:
    verdict = judge([START, *events]) or RunOutcome("ok")
    assert verdict.state == state
    assert verdict.reason.startswith(reason)
