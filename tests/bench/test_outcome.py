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
# 5.0.11 and 4.1.
CGROUP = [
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1054.0. Some of the step tasks have "
    "been OOM Killed.",
    "srun: error: r2: task 1: Out Of Memory",
]
CGROUP_25 = [
    "[2026-09-21T10:00:00.123] error: Detected 2 oom_kill events in StepId=7.0. Some of the step "
    "tasks have been OOM Killed."
]
OVER_LIMIT = [
    "slurmstepd: error: StepId=7.0 exceeded memory limit (734003200 > 52428800), being killed",
    "slurmstepd: error: *** STEP 7.0 ON r1 CANCELLED AT 2026-09-21T10:00:00 ***",
]
JOB_LIMIT = ["slurmstepd-r1: error: Exceeded job memory limit"]
OUT_OF_MEMORY = ["srun: error: r[1-2]: tasks 0-1: Out Of Memory"]
LOST = [
    "srun: error: Node failure on r2",
    "slurmstepd: error: *** STEP 7.0 ON r1 CANCELLED AT 2026-09-21T03:17:51 DUE TO NODE FAILURE, "
    "SEE SLURMCTLD LOG "
    "FOR DETAILS ***",
]
CANCELLED = [
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    "slurmstepd: error: *** STEP 7.0 ON r1 CANCELLED AT 2026-09-21T10:00:00 ***",
]
DAEMON_LOST = ["PRTE has lost communication with a remote daemon."]
EXITED = "Exited with exit code 1"
SRUN_KILLED = ["srun: error: r2: task 1: Killed", f"srun: error: r1: task 0: {EXITED}"]
NOTICED = "noticed that process rank 1 with PID 6376 on node r2 exited on"
KILLED = [f"prterun {NOTICED}", "signal 9 (Killed)."]
KILLED_4 = [f"mpirun {NOTICED} signal 9 (Killed)."]
LEFT = ["   Process name: [prterun-r1-6379@1,1]", "   Exit code:    3"]
LEFT_4 = ["  Process name: [[12345,1],1]", "  Exit code:    3"]
BAD_ALLOC = ["terminate called after throwing an instance of 'std::bad_alloc'"]


def error(message: str, rank: int = 1, **more: str) -> dict[str, Any]:
    return {"event": "error", "rank": rank, "message": message, **more}


def left(code: int, said: list[str] | None = None, **more: object) -> dict[str, Any]:
    facts = {"timed_out": False, "limit_s": 60, "interrupted": False, "wall_s": 4}
    return {"event": "exit", "code": code, "said": said or [], **facts, **more}


def judged(*events: dict[str, Any]) -> RunOutcome:
    verdict = judge([START, *events])
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    "said", [CGROUP, CGROUP_25, OVER_LIMIT, JOB_LIMIT, OUT_OF_MEMORY, BAD_ALLOC]
)
def test_out_of_memory_by_what_was_printed(said: list[str]) -> None:
    verdict = judged(left(137, said))
    assert (verdict.state, verdict.reason) == ("out of memory", said[0])


@pytest.mark.parametrize(
    "message",
    [
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
        "capacity of 79.11 GiB",
        "AcceleratorError: CUDA error: out of memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to ",
        "MemoryError: MemoryError",
        "_ArrayMemoryError: Unable to allocate 7.28 TiB for an array",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
)
def test_out_of_memory_by_a_ranks_own_error(message: str) -> None:
    peer = error("RuntimeError: Connection closed by peer [127.0.0.1]:4711", 0)
    for errors in ([error(message), peer], [peer, error(message)]):  # whoever gets to the log first
        verdict = judged(*errors, FAILED, left(1))
        assert (verdict.state, verdict.reason) == ("out of memory", f"rank 1: {message}")


@pytest.mark.parametrize("said", [LOST, LOST[1:], DAEMON_LOST])
@pytest.mark.parametrize("facts", [{}, {"interrupted": True}, {"timed_out": True}])
def test_node_lost(said: list[str], facts: dict[str, object]) -> None:
    """Whether its loss is noticed, ends the job, or lets a run wait until its limit."""
    verdict = judged(error("RuntimeError: lost", 0), STOPPED, left(143, said, **facts))
    assert (verdict.state, verdict.reason) == ("node lost", said[0])


def test_wrong_world() -> None:
    refused = error("srun started 2 ranks, but MPI sees a world of 1", 0, type=WrongWorld.__name__)
    verdict = judged(refused, FAILED, left(2))
    assert (verdict.state, verdict.reason) == ("wrong world", f"rank 0: {refused['message']}")
    # a rank that misses one that has failed before is not the cause
    late = error("1 of 2 ranks appeared", 0, type=WrongWorld.__name__)
    verdict = judged(error("ImportError: x"), late, left(1))
    assert (verdict.state, verdict.reason) == ("failed", "exit code 1: rank 1: ImportError: x")


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (SRUN_KILLED, 137, (f"rank 0: {EXITED}", "rank 1: Killed")),
        ([f"srun: error: r[1-2]: tasks 0,2-3: {EXITED}"], 1, (f"rank 0,2,3: {EXITED}",)),
        (KILLED, 137, ("rank 1: signal 9 (Killed)",)),
        (KILLED_4, 137, ("rank 1: signal 9 (Killed)",)),
        (LEFT, 3, ("rank 1: exit code 3",)),
        (LEFT_4, 3, ("rank 1: exit code 3",)),
        (["error: dataset is unknown", "mpirun: rank 0 left"], 2, ("error: dataset is unknown",)),
        (["something", "last line"], 1, ("last line",)),
        ([], 1, ()),
    ],
)
def test_failed_gives_the_code_and_the_last_words_of_every_rank(
    said: list[str], code: int, words: tuple[str, ...]
) -> None:
    reason = f"exit code {code}: {words[0] if words else 'no end event'}"
    assert judge([START, left(code, said)]) == RunOutcome("failed", reason, words)


def test_a_ranks_own_error_goes_before_what_its_launcher_says_of_it() -> None:
    boom = error("RuntimeError: boom")
    words = (f"rank 0: {EXITED}", "rank 1: RuntimeError: boom")
    assert judged(boom, left(1, SRUN_KILLED)) == RunOutcome(
        "failed", f"exit code 1: {words[1]}", words
    )


def test_many_ranks_stay_few_lines() -> None:
    verdict = judged(*(error(f"boom {rank}", rank) for rank in range(100)), left(1))
    assert verdict.words == (*(f"rank {rank}: boom {rank}" for rank in range(8)), "and 92 more")
    verdict = judged(*(error("boom", rank) for rank in (0, 2)), left(1))
    assert verdict.words == ("rank 0,2: boom",)


BY_SIGNAL = RunOutcome("interrupted", "stopped by SIGTERM")
KILLED_1 = "rank 1: signal 9 (Killed)"


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        ([], RunOutcome("running", "no end event: killed or still running")),
        ([START], RunOutcome("running", "no end event: killed or still running")),
        (
            [START, left(124, CANCELLED, timed_out=True)],
            RunOutcome("timed out", "timed out after 60 s", (CANCELLED[1],)),
        ),
        ([START, STOPPED, left(143, CANCELLED, interrupted=True)], BY_SIGNAL),
        ([left(143, interrupted=True)], RunOutcome("interrupted", "stopped")),
        ([START, error("x"), left(143, interrupted=True)], RunOutcome("interrupted", "stopped")),
        ([START, STOPPED], BY_SIGNAL),
        (
            [START, {"event": "end", "status": "interrupted", "reason": "its launcher is gone"}],
            RunOutcome("interrupted", "stopped: its launcher is gone"),
        ),
        (
            [START, STOPPED, left(137, KILLED)],
            RunOutcome("failed", f"exit code 137: {KILLED_1}", (KILLED_1,)),
        ),
        # srun has ended so where it could not start the ranks
        ([left(0)], RunOutcome("failed", "exit code 0: no end event")),
        ([START, FAILED, left(1)], RunOutcome("failed", "exit code 1: x")),
        (  # schema 1
            [START, {"event": "exit", "code": 1, "timed_out": False}],
            RunOutcome("failed", "exit code 1: no end event"),
        ),
        ([START, DONE, left(0)], None),
        ([START, DONE, left(139, CGROUP)], None),  # a crash after complete data
        ([START, DONE, left(143, interrupted=True)], None),
        (
            [START, DONE, error("boom"), left(1)],
            RunOutcome("failed", "exit code 1: rank 1: boom", ("rank 1: boom",)),
        ),
    ],
)
def test_every_other_end(events: list[dict[str, Any]], verdict: RunOutcome | None) -> None:
    assert judge(events) == verdict


@pytest.mark.parametrize(
    ("code", "said", "facts", "state"),
    [
        (137, KILLED, {"oom_kills": 1}, "out of memory"),
        (137, [], {"oom_kills": 2}, "out of memory"),
        (1, SRUN_KILLED, {"oom_kills": 1}, "out of memory"),
        (137, KILLED, {"oom_kills": 0}, "failed"),  # somebody's kill -9
        (1, LEFT, {"oom_kills": 1}, "failed"),  # it was some other process
        (137, KILLED, {"oom_kills": 1, "timed_out": True}, "timed out"),
        (137, KILLED, {"oom_kills": 1, "interrupted": True}, "interrupted"),
    ],
)
def test_a_kill_without_a_word_while_the_kernel_lacked_memory(
    code: int, said: list[str], facts: dict[str, object], state: str
) -> None:
    verdict = judged(STOPPED, left(code, said, **facts))
    assert verdict.state == state
    assert ("lack of memory" in verdict.reason) == (state == "out of memory")


def test_words_that_only_sound_like_a_cause() -> None:
    said = [
        "epoch 3: bloom_kills nothing, zoom in",
        "error: UNCORRECTABLE MEMORY ERROR",
        "model needs a memory limit of 3 GiB",
    ]
    assert judged(left(1, said)).state == "failed"
