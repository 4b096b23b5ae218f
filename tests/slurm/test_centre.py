"""The centre kit: its image takes files that are there, and ReFrame reports our logs' figures."""

from __future__ import annotations

import json
import os
import re
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

KIT = ROOT / "slurm" / "centre"
WORKLOAD = "--transport mpi --model tests.bench.tiny:normalised --batch-per-rank 8 --image-size 8 "
WORKLOAD += "--warmup-steps 3 --windows 3 --steps-per-window 3"
PARTITION: dict[str, Any] = {"name": "cpu", "scheduler": "local", "launcher": "mpirun"}
PARTITION |= {"environs": ["builtin"], "processor": {"num_cpus": 2}}
PARTITION |= {"extras": {"ranks_per_node": 2}}
SYSTEM = {"name": "here", "hostnames": [".*"], "partitions": [PARTITION]}
SETTINGS = {"systems": [SYSTEM], "environments": [{"name": "builtin"}]}


def reframe(folder: Path, backend: str, **variables: str) -> dict[str, Any]:
    """Run the test of a backend at one node of two ranks; returns its case of the report.

    Skips without the program, which CI counts as a failure.
    """
    if shutil.which("reframe") is None:
        pytest.skip("reframe is not installed here (PyPI's reframe-hpc, in an environment apart)")
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    command = ["reframe", "-C", str(folder / "settings.json"), "-c", str(KIT / "hvd_ddp.py")]
    command += ["--name", f"backend={backend}.*nodes=1", "--prefix", str(folder), "--run"]
    # a job of ReFrame's outlives it: it ends by this limit alone
    for name, value in {"workload": WORKLOAD, "time_limit": "4m", **variables}.items():
        command.append(f"-SHvdDdpRun.{name}={value}")
    report = folder / "report.json"
    env = {**os.environ, **launcher.root_variables(os.environ), "PYTHONPATH": str(ROOT)}
    streams: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    command.append(f"--report-file={report}")
    done = subprocess.run(command, cwd=folder, env=env, timeout=600, **streams)
    assert report.exists(), done.stdout + done.stderr
    (run,) = json.loads(report.read_text())["runs"]
    return dict(run["testcases"][0])


@pytest.mark.ranks
def test_reframe_reports_our_figures(tmp_path: Path) -> None:
    case = reframe(tmp_path, "horovod")
    assert case["result"] == "pass", case
    (log,) = tmp_path.rglob("run.jsonl")
    run = read_run(log)
    assert run.config is not None
    assert (run.problem, run.config.backend, run.config.world_size) == (None, "horovod", 2)
    assert [value[0] for value in case["perfvalues"].values()] == pytest.approx([run.images_per_s])


def test_reframe_fails_two_worlds_of_one_rank(tmp_path: Path) -> None:
    """What a launcher of another MPI starts: each process prints good figures of its own."""
    config = make_config({"backend": "ddp", "transport": "mpi", "batch_per_rank": 8})
    text = fom.text(fom.merits(config, [400.0, 420.0, 410.0], {}, ok=True))
    alone = tmp_path / "alone"
    alone.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    alone.chmod(0o755)
    case = reframe(tmp_path, "ddp", executable=str(alone))
    assert (case["result"], case["fail_phase"]) == ("fail", "sanity")


def test_the_image_takes_files_that_are_there_and_what_set_up_needs() -> None:
    text = (KIT / "Dockerfile").read_text()
    sources = [name for line in re.findall("^COPY (.*)$", text, re.M) for name in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in sources)
    (packages,) = re.findall(r"no-install-recommends (.*)", text)
    needs = (ROOT / "bench/tools/setup/install.py").read_text()
    assert packages in needs
