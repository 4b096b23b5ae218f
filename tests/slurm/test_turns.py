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
launches = 1
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


def launch(folder: Path, mark: str, fault: str) -> subprocess.Popen[str]:
    """Start a `python -m slurm run` of two runs, whose world 0 is held in a step by its fault."""
    (folder / "tiny.toml").write_text(STUDY)
    words = ["run", str(folder / "tiny.toml"), "--results", str(folder)]
    told = {"FAULT": fault, "FAULT_RANK": "0", "FAULT_WORLD": "0"}
    told |= {"FAULT_AT": str(folder / "moment"), "FAULT_MARK": mark}
    own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    own |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-m", "slurm", *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment(told), **own)


def runs(folder: Path) -> list[Run]:
    """Read the runs of both worlds in the order of their turns, which is the script's."""
    logs = (folder / "tiny" / "runs").glob("*.jsonl")
    return [read_run(log) for log in sorted(logs) if ".attempt-" not in log.name]


def wait_until_held(folder: Path) -> None:
    def held() -> bool:
        if not (folder / "moment").exists():
            return False
        return all(state(rank["pid"]) == STOPPED for rank in runs(folder)[1].host["ranks"])

    wait_for(held, LIMIT_S)


def ended(process: subprocess.Popen[str], folder: Path, mark: str) -> list[Run]:
    """Wait until the command and all that it started are gone, and return both runs."""
    process.communicate(timeout=LIMIT_S)
    assert left_behind(mark) == []
    both = runs(folder)
    assert not table_path(both[0].host["turns"]["launch"]).exists()
    return both


@pytest.mark.ranks
def test_a_fault_in_one_world_ends_both(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = launch(tmp_path, mark, "held step")
    wait_until_held(tmp_path)
    rank = runs(tmp_path)[1].host["ranks"][0]["pid"]
    stat = Path(f"/proc/{rank}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)  # the mpirun above it
    running, stopped = ended(process, tmp_path, mark)
    assert (running.state, stopped.state) == ("failed", "failed")
    partner = f"ended with {stopped.path.stem}, the run that it took turns with"
    assert (running.problem or "").endswith(partner)
    assert (stopped.problem or "").endswith("error: the launcher was killed by SIGKILL")


@pytest.mark.ranks
def test_a_stop_ends_both_and_the_same_command_does_them_again(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = launch(tmp_path, mark, "held step")
    wait_until_held(tmp_path)
    process.send_signal(signal.SIGINT)
    for run in ended(process, tmp_path, mark):
        assert run.state == "interrupted"
        assert re.fullmatch(r"stopped( by SIG\w+)?", run.problem or "")
    again = ended(launch(tmp_path, mark, "none"), tmp_path, mark)
    assert [run.state for run in again] == ["ok", "ok"]
