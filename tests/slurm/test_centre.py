"""The ReFrame example, with the real ReFrame: it reports the figures of our logs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import fom
from bench.config import make_config
from bench.launch import launcher
from bench.record import read_run
from tests.slurm.studies import ROOT

FILES = ROOT / "slurm" / "centre" / "reframe"
WORKLOAD = "--transport mpi --model tests.bench.tiny:normalised --batch-per-rank 8 --image-size 8 "
WORKLOAD += "--warmup-steps 3 --windows 3 --steps-per-window 3"


def reframe(folder: Path, names: str, **variables: str) -> dict[str, Any]:
    """Run the test of this name, a pattern; returns its case of the report.

    Skips without the program, which CI counts as a failure.
    """
    if shutil.which("reframe") is None:
        pytest.skip("reframe is not installed here (PyPI's reframe-hpc, in an environment apart)")
    report = folder / "report.json"
    command = ["reframe", "-C", str(FILES / "settings.py"), "-c", str(FILES / "hvd_ddp.py")]
    command += ["--name", names, "--prefix", str(folder), f"--report-file={report}", "--run"]
    # a job of ReFrame's outlives it: it ends by this limit alone
    for name, value in {"workload": WORKLOAD, "time_limit": "4m", **variables}.items():
        command.append(f"-SHvdDdpRun.{name}={value}")
    env = {**os.environ, **launcher.root_variables(os.environ), "PYTHONPATH": str(ROOT)}
    streams: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    done = subprocess.run(command, cwd=folder, env=env, timeout=600, **streams)
    assert report.exists(), done.stdout + done.stderr
    (run,) = json.loads(report.read_text())["runs"]
    return dict(run["testcases"][0])


@pytest.mark.ranks
def test_reframe_reports_our_figures_and_holds_them_against_a_reference(tmp_path: Path) -> None:
    case = reframe(tmp_path, "backend=horovod.*scale=1_node", expected="1e9")
    assert (case["result"], case["fail_phase"]) == ("fail", "performance"), "nobody reaches 1e9"
    (log,) = tmp_path.rglob("run.jsonl")
    run = read_run(log)
    assert run.config is not None
    assert (run.problem, run.config.backend, run.config.world_size) == (None, "horovod", 2)
    shown = {name.rpartition(":")[2]: value[0] for name, value in case["perfvalues"].items()}
    assert shown == pytest.approx({"total": run.images_per_s, "per_device": run.images_per_s / 2})


@pytest.mark.parametrize(("scale", "result"), [("1_rank", "pass"), ("1_node", "fail")])
def test_reframe_fails_two_worlds_of_one_rank(tmp_path: Path, scale: str, result: str) -> None:
    """What a launcher of another MPI starts: each process prints good figures of its own."""
    config = make_config({"backend": "ddp", "transport": "mpi", "batch_per_rank": 8})
    text = fom.text(fom.merits(config, [400.0, 420.0, 410.0], {}, ok=True))
    alone = tmp_path / "alone"
    alone.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    alone.chmod(0o755)
    case = reframe(tmp_path, f"backend=ddp.*scale={scale}", executable=str(alone))
    assert (case["result"], case["fail_phase"] or "sanity") == (result, "sanity")
