"""Runs that cannot take turns: they are launched one by one, end well, and their logs say why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.lifecycle import turn_table
from bench.record import Run, read_run
from slurm.driver import job as driver
from slurm.driver.launches import read_launches
from slurm.driver.options import JobOptions
from tests.bench.ranks import ROOT, environment
from tests.slurm.studies import TINY
from tests.slurm.test_end_to_end import runs, start_study

STUDY = """\
name = "tiny"
question = "Why are they apart?"
cells = ["ddp/gloo", "{candidate}"]
reference = "ddp/gloo"
candidate = "{candidate}"
scaling = ["weak"]
world_sizes = [1]
blocks = 1
time_limit_s = 120
"""
STUDY += TINY + "windows = 2\n"
TO_A_TARGET = STUDY.format(candidate="horovod/gloo") + "epochs = 1\ntarget = 0.01\n"
IN_A_CONTAINER = STUDY.format(candidate="horovod/gloo")


def one_by_one(logs: list[Run]) -> str:
    """Why the runs were, all of which are ok."""
    assert [(run.state, run.problem) for run in logs] == [("ok", None)] * len(logs)
    assert not any("turns" in run.host for run in logs)
    (why,) = {run.exit["apart"] for run in logs}
    return str(why)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("text", "site", "why"),
    [
        (TO_A_TARGET, "", "trainings to a target have no windows to take turns by"),
        (IN_A_CONTAINER, '\n[setup]\ncontainer = ["env"]\n', "a container hides its processes"),
    ],
)
def test_what_a_study_or_a_site_rules_out(tmp_path: Path, text: str, site: str, why: str) -> None:
    local = (ROOT / "slurm" / "sites" / "local.toml").read_text()
    (tmp_path / "mine.toml").write_text(local.replace('"local"', '"mine"', 1) + site)
    process = start_study(tmp_path, text, str(tmp_path / "mine.toml"))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    logs = runs(tmp_path)
    assert len(logs) == 2
    assert one_by_one(logs).startswith(why)


class Launched:
    """Two runs of a rank each that are to take turns, and how the driver launches them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(ROOT)
        for name, value in environment().items():
            monkeypatch.setenv(name, value)
        asked = JobOptions(
            study_dir=folder,
            limit_s=120,
            python=sys.executable,
            container=[],
            launcher="mpirun",
            launch_args=["--bind-to", "none", "--oversubscribe"],
        )
        shared = ["--model", "tests.bench.tiny:plain", "--dataset", "digits", "--transport", "gloo"]
        shared += ["--warmup-steps", "3", "--windows", "2", "--batch-per-rank", "4"]
        lines = "turns 2\nrun a 1 --backend ddp\nrun b 1 --backend horovod\n"
        (folder / "runs").mkdir()
        self.job = driver.LocalJob(asked, shared, read_launches(lines))
        self.logs = [folder / "runs" / f"{name}.jsonl" for name in "ab"]

    def runs(self) -> list[Run]:
        self.job.run_all()
        return [read_run(log) for log in self.logs]


@pytest.mark.parametrize(
    ("modes", "device", "mps", "together"),
    [
        (("Default", "Exclusive_Process"), "cuda", False, False),
        (("Default", "Exclusive_Process"), "cuda", True, True),
        (("Default", "Exclusive_Process"), "cpu", False, True),
        (("Default", "Default"), "cuda", False, True),
    ],
)
def test_a_gpu_of_one_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modes: tuple[str, ...],
    device: str,
    mps: bool,
    together: bool,
) -> None:
    """By an nvidia-smi that says what the real one does: there is no GPU here."""
    job = Launched(tmp_path, monkeypatch).job
    job.common += ["--device", device]
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(modes)}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    if mps:
        (tmp_path / "control").touch()
    parts = job.parts(job.launches[0])
    why = "a GPU of compute mode Exclusive_Process takes one world at a time"
    assert [(len(part.lines), part.apart) for part in parts] == (
        [(2, "")] if together else [(1, why)] * 2
    )


@pytest.mark.ranks
def test_a_node_whose_memory_cannot_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setattr(turn_table, "SHARED_MEMORY", missing)
    monkeypatch.setattr(driver, "SHARED_MEMORY", missing)
    why = f"{missing} cannot be written: No such file or directory"
    assert one_by_one(Launched(tmp_path, monkeypatch).runs()) == why
