"""Runs that take turns, started by the driver, with a fault in one of them: both end in a recorded
state, nothing of them is left, and the same command does them again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from bench.lifecycle.peers import STOPPED, state
from bench.lifecycle.turns import table_path
from bench.record import Run, read_run
from tests.bench.ranks import ROOT, environment
from tests.bench.test_faults import left_behind
from tests.slurm.test_job_script import wait_for

STUDY = """\
name = "tiny"
question = "What does a fault do to both?"
cells = ["ddp/gloo", "horovod/gloo"]
scaling = ["weak"]
world_sizes = [2]
blocks = 1
time_limit_s = 600

[weak]
batch_per_rank = 4

[run]
model = "tests.bench.faulty:model"
dataset = "tests.bench.faulty:images"
image_size = 8
warmup_steps = 3
windows = 3
steps_per_window = 3
stall_timeout_s = 600
"""
LIMIT_S = 300.0  # for what a test waits for


class Launched:
    """A `python -m slurm run` of two runs: world 0 is held in a step while world 1 is stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark, self.moment = folder, uuid.uuid4().hex, folder / "moment"

    def start(self, planned: str) -> subprocess.Popen[str]:
        source = self.folder / "tiny.toml"
        source.write_text(STUDY)
        command = [sys.executable, "-m", "slurm", "run", str(source), "--results", str(self.folder)]
        told = {"FAULT": planned, "FAULT_RANK": "0", "FAULT_WORLD": "0"}
        told |= {"FAULT_AT": str(self.moment), "FAULT_MARK": self.mark}
        own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
        own |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=environment(told), **own)

    def runs(self) -> list[Run]:
        """Read the runs of both worlds in the order of their turns, which is the script's."""
        logs = (self.folder / "tiny" / "runs").glob("*.jsonl")
        return [read_run(log) for log in sorted(logs) if ".attempt-" not in log.name]

    def pid(self, world: int, rank: int) -> int:
        return int(self.runs()[world].host["ranks"][rank]["pid"])

    def launcher(self, world: int) -> int:
        """Find the process id of the mpirun above a world's ranks."""
        stat = Path(f"/proc/{self.pid(world, 0)}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def is_held(self) -> bool:
        there = self.moment.exists()
        return there and all(state(self.pid(1, rank)) == STOPPED for rank in range(2))

    def ended(self, process: subprocess.Popen[str]) -> list[Run]:
        """Wait until the command and all that it started are gone, and return both runs."""
        process.communicate(timeout=LIMIT_S)
        runs = self.runs()
        assert left_behind(self.mark) == []
        assert not table_path(runs[0].host["turns"]["launch"]).exists()
        return runs


@pytest.mark.ranks
def test_a_fault_in_one_world_ends_both(tmp_path: Path) -> None:
    launched = Launched(tmp_path)
    process = launched.start("held step")
    wait_for(launched.is_held, LIMIT_S)
    os.kill(launched.launcher(1), signal.SIGKILL)
    running, stopped = launched.ended(process)
    assert (running.state, stopped.state) == ("failed", "failed")
    partner = f"ended with {stopped.path.stem}, the run that it took turns with"
    assert (running.problem or "").endswith(partner)
    assert (stopped.problem or "").endswith("error: the launcher was killed by SIGKILL")


@pytest.mark.ranks
def test_a_stop_ends_both_and_the_same_command_does_them_again(tmp_path: Path) -> None:
    launched = Launched(tmp_path)
    process = launched.start("held step")
    wait_for(launched.is_held, LIMIT_S)
    process.send_signal(signal.SIGINT)
    for run in launched.ended(process):
        assert run.state == "interrupted"
        assert re.fullmatch(r"stopped( by SIG\w+)?", run.problem or "")
    assert [run.state for run in launched.ended(launched.start("none"))] == ["ok", "ok"]
