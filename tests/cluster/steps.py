"""Runs of the bench on the cluster, looked after as a job script does: a limit, an `exit` event,
and nothing left behind.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.record import Run, append_event, read_run
from tests.cluster.namespace import ROOT

TINY = ("--model", "tests.bench.tiny:normalised", "--dataset", "synthetic", "--batch-per-rank", "8")
SHORT = (*TINY, "--warmup-steps", "3", "--windows", "2", "--steps-per-window", "3")
ENDLESS = (*TINY, "--windows", "100000")
PLUG_IN = {"gloo": "none", "mpi": "pmix"}  # what srun must be told for each transport
CELLS = [(backend, transport) for backend in ("ddp", "horovod") for transport in ("gloo", "mpi")]
LOST = "n2"  # the node that tests switch off
_GRACE_S = 20.0  # from TERM to KILL Slurm waits five
_started: list[subprocess.Popen[str]] = []


def cell(backend: str, transport: str, ranks: int) -> list[str]:
    """Return options of the bench for one framework over one transport."""
    return ["--backend", backend, "--transport", transport, "--world-size", str(ranks)]


def run(
    command: Sequence[str], limit_s: float = 120, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run to the end; its output is captured."""
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL
    )


def bench(*options: str) -> list[str]:
    """Return the command `python -m bench` with these options."""
    return [sys.executable, "-m", "bench", *options]


class Step:
    """One `srun python -m bench` that has been started."""

    def __init__(self, log: Path, srun: Sequence[str], options: Sequence[str]) -> None:
        self.log = log
        self._started = time.monotonic()
        # -K1: ranks that wait for a dead one are ended
        self._process = subprocess.Popen(
            ["srun", "-K1", *srun, *bench(*options, "--log-path", str(log))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
        self.output = ""
        _started.append(self._process)

    def reach_windows(self, limit_s: float = 300) -> Run:
        """Wait until the run is inside its windows, and read the log as far as it goes."""
        deadline = time.monotonic() + limit_s
        while not (self.log.exists() and '"window", "index": 1' in self.log.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"no windows: {self._process.communicate(timeout=_GRACE_S)[0]}")
            time.sleep(0.1)
        return read_run(self.log)

    def end(self, limit_s: float = 150) -> Run:
        """Wait to the end or to the limit, note how it ended, and read the log."""
        timed_out = False
        try:
            self.output = self._process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            timed_out = True
            self._process.kill()
            self.output = self._process.communicate()[0]
        self.log.with_suffix(".out").write_text(self.output)
        facts: dict[str, object] = {"timed_out": timed_out, "limit_s": limit_s}
        facts |= {"interrupted": False, "said": self.output.splitlines()}
        self.log.touch()
        facts |= {"code": self._process.returncode, "wall_s": time.monotonic() - self._started}
        append_event(self.log, "exit", **facts)
        return recorded_once(self.log)


def finish(log: Path, srun: Sequence[str], options: Sequence[str]) -> Run:
    """Run to the end; fails with all that was printed unless the log proves a complete run."""
    step = Step(log, srun, options)
    result = step.end()
    assert result.problem is None, f"{result.problem}\n{step.output}"
    return result


def recorded_once(log: Path) -> Run:
    """Read the run of `log`, which has ended; check that no event is lost before its last one,
    and that none is doubled.
    """
    result = read_run(log)
    counts = Counter(event["event"] for event in result.events)
    assert counts["start"] <= 1
    assert counts["end"] <= 1
    assert counts["exit"] <= 1
    assert [window["index"] for window in result.windows] == list(range(counts["window"]))
    assert result.state != "running", result.problem
    return result


def places(result: Run) -> list[tuple[str, int, int]]:
    """Return host, local rank and local size of each rank, as the run recorded them."""
    return [
        (rank["hostname"], rank["local_rank"], rank["local_size"]) for rank in result.host["ranks"]
    ]


def abandon() -> None:
    """End every srun that a failed test has not waited for."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def leftovers(within_s: float = _GRACE_S) -> list[str]:
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
