"""The files for other suites, with the real suites: they report the figures of our logs."""

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
WORKLOAD = "--model tests.bench.tiny:normalised --batch-per-rank 8 --image-size 8 "
WORKLOAD += "--warmup-steps 3 --windows 3 --steps-per-window 3"


def reframe(folder: Path, names: str, **variables: str) -> dict[str, dict[str, Any]]:
    """Run the tests of these names, a pattern; test cases of the report, as `ddp 1_rank`.

    Skips without the program, which CI counts as a failure.
    """
    if shutil.which("reframe") is None:
        pytest.skip("reframe is not installed here (PyPI's reframe-hpc, in an environment apart)")
    report = folder / "report.json"
    # a job of ReFrame's outlives it: it ends by this limit alone
    values = {"workload": WORKLOAD, "time_limit": "4m", **variables}
    command = ["reframe", "-C", str(FILES / "settings.py"), "-c", str(FILES / "hvd_ddp.py")]
    command += ["--system", "machine", "--name", names, "--tag", "production"]
    command += ["--prefix", str(folder), f"--report-file={report}", "--run"]
    command += [f"-SHvdDdpRun.{name}={value}" for name, value in values.items()]
    env = {**os.environ, **launcher.root_variables(os.environ), "PYTHONPATH": str(ROOT)}
    streams: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    done = subprocess.run(command, cwd=folder, env=env, timeout=1200, **streams)
    assert report.exists(), done.stdout + done.stderr
    (run,) = json.loads(report.read_text())["runs"]
    return {f"{case['backend']} {case['scale']}": case for case in run["testcases"]}


@pytest.mark.ranks
def test_reframe_reports_our_figures_and_holds_them_against_a_reference(tmp_path: Path) -> None:
    references = tmp_path / "references.json"
    references.write_text(json.dumps({"ddp": {"1_node": 1e-3}, "horovod": {"1_node": 1e9}}))
    cases = reframe(tmp_path, "scale=1_node", expected=str(references))
    results = {name: (case["result"], case["fail_phase"]) for name, case in cases.items()}
    # nobody reaches 1e9 images/s
    assert results == {"ddp 1_node": ("pass", None), "horovod 1_node": ("fail", "performance")}
    logs = [read_run(path) for path in tmp_path.rglob("run.jsonl")]
    assert [run.problem for run in logs] == [None] * 2
    runs = {run.config.backend: run for run in logs if run.config is not None}
    for case in cases.values():
        assert {*case["tags"]} == {"production", "maintenance", "1_node"}
        rate = runs[case["backend"]].images_per_s
        shown = {name.rpartition(":")[2]: value[0] for name, value in case["perfvalues"].items()}
        assert (shown["total"], shown["per_device"]) == pytest.approx((rate, rate / 2))
        assert shown["plus_minus"] > 0


def test_reframe_fails_two_worlds_of_one_rank(tmp_path: Path) -> None:
    """What a launcher of another MPI starts: each process prints good figures of its own."""
    config = make_config({"backend": "ddp", "transport": "mpi", "batch_per_rank": 8})
    text = fom.text(fom.merits(config, [400.0, 420.0, 410.0], {}, ok=True))
    alone = tmp_path / "alone"
    alone.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    alone.chmod(0o755)
    cases = reframe(tmp_path, "backend=ddp.*scale=1_(rank|node)", executable=str(alone))
    assert cases["ddp 1_rank"]["result"] == "pass"
    assert cases["ddp 1_node"]["fail_phase"] == "sanity"
