"""What Slurm and the nodes say of the tests' jobs and runs, and what these leave behind."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.record import Run, read_run
from tests.cluster.namespace import ROOT

LOST = "n2"  # the node that tests switch off
ENDS = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY"]


def run(command: Sequence[str], limit_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run to the end; its output is captured."""
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL
    )


def facts(job: str) -> dict[str, str]:
    """Read what Slurm knows of the job, by scontrol's names."""
    done = run(["scontrol", "-o", "show", "job", job])
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"(\S+?)=(\S*)", done.stdout))


def wait_for(job: str, states: Sequence[str] = ENDS, limit_s: float = 150) -> str:
    """Wait until the job's state is one of `states`, by default an end; return that state."""
    deadline = time.monotonic() + limit_s
    while (state := facts(job)["JobState"]) not in states:
        if time.monotonic() > deadline:
            pytest.fail(f"job {job} is {state}, not {' or '.join(states)}, after {limit_s:g} s")
        time.sleep(0.2)
    return state


def start_again(job: str) -> None:
    """Let a requeued job start now: by itself it would wait for two minutes."""
    wait_for(job, ["PENDING"])
    # a start within a second or so of the last one's end is refused on the nodes: "Job credential
    # revoked"
    time.sleep(2)
    run(["scontrol", "update", f"JobId={job}", "TimeLimit=15", "StartTime=now"])


def recorded_once(log: Path) -> Run:
    """Read the run of `log`, which has ended; check that no event is lost before its last one,
    and that none is doubled.
    """
    result = read_run(log)
    counts = Counter(event["event"] for event in result.events)
    assert max(counts[event] for event in ("start", "end", "exit")) <= 1
    assert [window["index"] for window in result.windows] == list(range(counts["window"]))
    assert result.state != "running", result.problem
    return result


def leftovers(within_s: float = 20) -> list[str]:
    """List processes of runs and Slurm's steps, and jobs, that are still there after `within_s`."""
    deadline = time.monotonic() + within_s
    while left := _processes() + run(["squeue", "-h"]).stdout.splitlines():
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return left


def _processes() -> list[str]:
    """List command lines of every node's ranks and step daemons: the login node sees all processes
    of the cluster.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has just ended
        if words[0].startswith("slurmstepd") or words[1:3] == ["-m", "bench"] or words[0] == "srun":
            found.append(" ".join(words).strip())
    return found
