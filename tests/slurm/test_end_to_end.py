"""A study under the real mpirun and the real training loop: more ranks than cores, and a stop in
the middle of a run.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.record import Run, read_run
from tests.slurm.studies import ROOT, TINY
from tests.slurm.test_job_script import OTHER_WORK, alive, wait_for

pytestmark = pytest.mark.ranks

STUDY = """\
name = "tiny"
question = "Does the whole way work?"
cells = ["single", "ddp/mpi", "horovod/mpi"]
scaling = ["weak"]
world_sizes = [3]
blocks = 1
time_limit_s = 120
"""
STUDY += TINY + "windows = {windows}\n"


def start(folder: Path, windows: int) -> "subprocess.Popen[str]":
    return start_study(folder, STUDY.format(windows=windows))


def start_study(folder: Path, text: str, site: str = "local") -> "subprocess.Popen[str]":
    (folder / "tiny.toml").write_text(text)
    words = ["--results", str(folder), "--site", site]
    command = [sys.executable, "-m", "slurm", "run", str(folder / "tiny.toml"), *words]
    # nothing of a launch that these tests may run under; what mpirun needs, the site says
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("OMPI_", "PMIX_", "PRTE_", "MPIRUN"))
    }
    return subprocess.Popen(
        command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def runs(folder: Path) -> list[Run]:
    return [read_run(path) for path in sorted((folder / "tiny" / "runs").glob("*.jsonl"))]


def test_a_study_of_three_ranks(tmp_path: Path) -> None:
    process = start(tmp_path, windows=2)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, OTHER_WORK.sub("", err)) == (0, ""), out
    done = {run.config.cell: run for run in runs(tmp_path) if run.config}
    assert {cell: len(run.step_seconds()) for cell, run in done.items()} == {
        "single": 1,
        "ddp/mpi": 3,
        "horovod/mpi": 3,
    }
    assert {run.problem for run in done.values()} == {None}
    assert {run.exit["code"] for run in done.values()} == {0}


def test_a_stopped_run_writes_its_own_end_and_leaves_no_rank(tmp_path: Path) -> None:
    process = start(tmp_path, windows=100_000)
    deadline = time.monotonic() + 120
    while not any(run.windows for run in runs(tmp_path)):
        assert time.monotonic() < deadline, "no window within 120 s"
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    stopped = runs(tmp_path)
    assert [run.end["status"] for run in stopped] == ["interrupted"] * 3, "a log for each world"
    assert all(run.exit["interrupted"] is True for run in stopped)
    pids = [rank["pid"] for run in stopped for rank in run.host["ranks"]]
    assert len(pids) == 1 + 3 + 3
    wait_for(lambda: not any(map(alive, pids)))
