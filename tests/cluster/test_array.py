"""Tasks of one array on the same names: one does the work, the others say who does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.record import read_run
from slurm.slurm_commands import queue
from tests.cluster import jobs, steps
from tests.cluster.steps import run

pytestmark = pytest.mark.cluster
_STUDY = """\
name = "array"
question = "who does the runs of a script that is submitted as an array?"
cells = ["single"]
nodes = [1]
scaling = ["weak"]
blocks = 1
time_limit_s = 120

[weak]
batch_per_rank = 8

[run]
model = "tests.bench.tiny:normalised"
dataset = "synthetic"
image_size = 8
windows = 2
steps_per_window = 2
"""


def _array(folder: Path, script: Path, *options: str) -> list[str]:
    """What the tasks of an array of three printed, each to its end."""
    words = ["sbatch", "--parsable", "--array=0-2", f"--output={folder}/task-%a.out", *options]
    done = run([*words, str(script)])
    assert done.returncode == 0, done.stderr
    seen = queue()
    assert seen, "the array is in the queue"
    assert all(job.id.isdecimal() for job in seen)
    for number in range(3):
        jobs.wait_for(f"{done.stdout.strip()}_{number}", ["COMPLETED", "FAILED"])
    return [(folder / f"task-{number}.out").read_text() for number in range(3)]


def test_a_job_script_is_done_by_one_task(tmp_path: Path) -> None:
    study = tmp_path / "array.toml"
    study.write_text(_STUDY)
    words = ["--site", "testcluster", "--results", str(tmp_path / "results")]
    script = tmp_path / "job.sh"
    rendered = run([sys.executable, "-m", "slurm", "render", str(study), *words])
    script.write_text(rendered.stdout)
    outputs = _array(tmp_path, script, "--export=ALL,PREFLIGHT=no")
    refused = [text for text in outputs if "of the same array does these runs" in text]
    assert len(refused) == 2, outputs
    (done,) = {*outputs} - {*refused}
    assert "0 failed, 0 left" in done
    logs = sorted((tmp_path / "results" / "array" / "runs").glob("*.jsonl"))
    assert len(logs) == 1
    assert [read_run(log).problem for log in logs] == [None] * len(logs)


def test_a_log_is_written_by_one_task(tmp_path: Path) -> None:
    log, script = tmp_path / "run.jsonl", tmp_path / "job.sh"
    command = " ".join(steps.bench(*steps.SHORT, "--log-path", str(log)))
    script.write_text(f"#!/bin/bash\nexec {command} 2>&1\n")
    outputs = _array(tmp_path, script)
    assert read_run(log).problem is None
    refused = [text for text in outputs if "choose another name" in text]
    assert len(refused) == 2, outputs
