"""ReFrame with the files of slurm/centre, on a workload of seconds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.launch import launcher
from bench.record import Run, read_run

ROOT = Path(__file__).parents[2]
CENTRE = ROOT / "slurm" / "centre"
SHORT = "--image-size 8 --warmup-steps 3 --windows 3 --steps-per-window 3"
MODEL = "tests.bench.tiny:normalised"
FRAMEWORKS = ("ddp", "horovod")


def _run(command: Sequence[str], folder: Path, package: str) -> str:
    """Standard output; skips without the program, which CI counts as a failure."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here ({package})")
    env = {**os.environ, **launcher.root_variables(os.environ), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=1200, check=False
    )
    return done.stdout + done.stderr


def reframe(folder: Path, system: str, names: str, **variables: str) -> dict[str, dict[str, Any]]:
    """Run the tests of these names, a pattern; test cases of the report, as `ddp 1_rank`."""
    report = folder / "report.json"
    workload = f"--model {MODEL} --batch-per-rank 8 {SHORT}"
    # a job of ReFrame's outlives it: it ends by this limit alone
    values = {"workload": workload, "time_limit": "4m", **variables}
    files = ["-C", str(CENTRE / "reframe/settings.py"), "-c", str(CENTRE / "reframe/hvd_ddp.py")]
    chosen = ["--system", system, "--name", names, "--tag", "production"]
    places = ["--prefix", str(folder), f"--report-file={report}"]
    options = [f"-SHvdDdpRun.{name}={value}" for name, value in values.items()]
    command = ["reframe", *files, *chosen, *places, *options, "--run"]
    output = _run(command, folder, "PyPI's reframe-hpc, in an environment of its own")
    assert report.exists(), output
    (run,) = json.loads(report.read_text())["runs"]
    return {f"{case['backend']} {case['scale']}": case for case in run["testcases"]}


def figures(case: Mapping[str, Any]) -> dict[str, float]:
    """Performance of a test case by name, without its system."""
    return {name.rpartition(":")[2]: value[0] for name, value in case["perfvalues"].items()}


def logs(folder: Path) -> dict[tuple[str, int], Run]:
    """The complete logs below a folder, by framework and ranks."""
    runs = [read_run(path) for path in folder.rglob("run.jsonl")]
    assert [run.problem for run in runs] == [None] * len(runs)
    return {(r.config.backend, r.config.world_size): r for r in runs if r.config is not None}
