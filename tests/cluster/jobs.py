"""What Slurm says of the tests' batch jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import pytest

from tests.cluster import steps


def facts(job: str) -> dict[str, str]:
    """Read what Slurm knows of the job, by scontrol's names."""
    done = steps.run(["scontrol", "-o", "show", "job", job])
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"(\S+?)=(\S*)", done.stdout))


def wait_for(job: str, states: Sequence[str], limit_s: float = 150) -> str:
    """Wait until the job's state is one of `states`, and return that state."""
    deadline = time.monotonic() + limit_s
    while (state := facts(job)["JobState"]) not in states:
        if time.monotonic() > deadline:
            pytest.fail(f"job {job} is {state}, not {' or '.join(states)}, after {limit_s:g} s")
        time.sleep(0.2)
    return state


def start_again(job: str, minutes: int = 15) -> None:
    """Let a requeued job start now, with its time limit as it was: by itself it would wait for two
    minutes.
    """
    wait_for(job, ["PENDING"])
    time.sleep(
        2
        # a start within a second or so of the last one's end is refused on the nodes: "Job
        # credential revoked"
    )
    steps.run(["scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}", "StartTime=now"])
