"""A study under the real mpirun and the real training loop: more ranks than cores."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.record import read_run
from tests.slurm.studies import ROOT
from tests.slurm.test_job_script import OTHER_WORK

STUDY = """\
name = "tiny"
question = "Does the whole way work?"
cells = ["single", "ddp/mpi", "horovod/mpi"]
scaling = ["weak"]
world_sizes = [3]
launches = 1
time_limit_s = 120

[weak]
batch_per_rank = 4

[run]
model = "tests.bench.tiny:plain"
dataset = "digits"
warmup_steps = 3
steps_per_window = 2
windows = 2
"""


@pytest.mark.ranks
def test_a_study_of_three_ranks(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(STUDY)
    words = [str(tmp_path / "tiny.toml"), "--results", str(tmp_path), "--site", "local"]
    # nothing of a launch that these tests may run under; what mpirun needs, the site says
    others = ("OMPI_", "PMIX_", "PRTE_", "MPIRUN")
    env = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    command = [sys.executable, "-m", "slurm", "run", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, OTHER_WORK.sub("", done.stderr)) == (0, ""), done.stdout
    runs = [read_run(path) for path in (tmp_path / "tiny" / "runs").glob("*.jsonl")]
    ranks = {run.config.cell: len(run.step_seconds()) for run in runs if run.config}
    assert ranks == {"single": 1, "ddp/mpi": 3, "horovod/mpi": 3}
    assert {(run.problem, run.exit["code"]) for run in runs} == {(None, 0)}
