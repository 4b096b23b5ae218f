"""ReFrame and JUBE with the files of slurm/centre, on a workload of seconds."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.launch import launcher
from bench.record import Run, read_run

ROOT = Path(__file__).parents[2]
CENTRE = ROOT / "slurm" / "centre"
SHORT = "--image-size 8 --warmup-steps 3 --windows 3 --steps-per-window 3"
MODEL = "tests.bench.tiny:normalised"
_DEBIAN = "Debian package jube"
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


def jube(folder: Path, values: Mapping[str, object], *words: str) -> None:
    """`jube run` with a copy of the file in which parameters have these values."""
    for path in (CENTRE / "jube").iterdir():
        shutil.copy(path, folder)
    benchmark = folder / "hvd_ddp.yaml"
    described = yaml.safe_load(benchmark.read_text())
    small = {"model": MODEL, "batch_per_rank": 8, "options": SHORT}
    small |= {"preprocess": f". {sys.prefix}/bin/activate", **values}
    parameters = [p for group in described["parameterset"] for p in group["parameter"]]
    assert {*small} <= {parameter["name"] for parameter in parameters}
    for parameter in parameters:
        parameter["_"] = small.get(parameter["name"], parameter["_"])
    benchmark.write_text(yaml.safe_dump(described))
    _run(["jube", "run", benchmark.name, "--hide-animation", *words], folder, _DEBIAN)


def jube_finish(folder: Path, limit_s: float = 240) -> None:
    """Return once the jobs that JUBE submitted have ended, as JUBE sees it."""
    deadline = time.monotonic() + limit_s
    while "FINISHED" not in (state := _run(["jube", "status", "runs"], folder, _DEBIAN)):
        assert time.monotonic() < deadline, state
        time.sleep(1)
        _run(["jube", "continue", "runs", "--hide-animation"], folder, _DEBIAN)


def jube_table(folder: Path) -> list[dict[str, str]]:
    """Rows of the result as CSV."""
    output = _run(["jube", "result", "runs", "--only", "csv"], folder, _DEBIAN)
    lines = output[output.index("jobid,") :].splitlines()
    return list(csv.DictReader(line for line in lines if "," in line))


def logs(folder: Path) -> dict[tuple[str, int], Run]:
    """The complete logs below a folder, by framework and ranks."""
    runs = [read_run(path) for path in folder.rglob("run.jsonl")]
    assert [run.problem for run in runs] == [None] * len(runs)
    return {(r.config.backend, r.config.world_size): r for r in runs if r.config is not None}
