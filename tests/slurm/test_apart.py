"""Runs that cannot take turns: they are launched one by one, and it is said why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.study.plan import plan
from slurm.driver.job import LocalJob
from slurm.driver.script import GroupLines, JobOptions, read_groups
from slurm.site import read_site
from slurm.together import together
from tests.slurm.studies import changed, small

TURNS = {"turns": "", "cells": 'cells = ["ddp/gloo", "horovod/gloo"]', "launches": "launches = 1"}
TARGET = {"windows": "windows = 2\nepochs = 3\ntarget = 0.9"}
UNEQUAL = {"nesterov": "nesterov = true\n[arms.a]\n[arms.b]\nwindows = 3"}
PYXIS = {"launch_args": ["--container-image=bench.sqsh"]}
HIDES = "a container hides its processes from other worlds"


@pytest.mark.parametrize(
    ("of_study", "site", "of_site", "why"),
    [
        ({}, "local", {}, ""),
        (TARGET, "local", {}, "trainings to a target have no windows to take turns by"),
        (UNEQUAL, "local", {}, "their windows are not as many"),
        ({}, "local", {"setup__container": ["env"]}, HIDES),
        ({}, "testcluster", PYXIS, HIDES),
        ({}, "vista", {}, "ibrun starts one world at a time"),
    ],
)
def test_what_a_study_or_a_site_rules_out(
    tmp_path: Path, of_study: dict[str, str], site: str, of_site: dict[str, object], why: str
) -> None:
    study = small(tmp_path, **TURNS, **of_study)
    runs = plan(study, 1, tmp_path)[0]
    launches = [*together(runs, study, changed(read_site(site), **of_site))]
    assert {launch.apart for launch in launches if len(launch.runs) > 1} == {why}
    alone = study.model_copy(update={"turns": False})
    assert {len(x.runs) for x in together(runs, alone, read_site(site))} == {1}


def test_a_gpu_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an nvidia-smi that says what the real one does: there is no GPU here."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    started: list[GroupLines] = []
    monkeypatch.setattr(LocalJob, "_start", lambda job, launch: started.append(launch))
    lines = read_groups("turns 2\nrun a 1 --backend ddp\nrun b 1 --backend horovod\n")
    options = JobOptions(study_dir=tmp_path, python="python")

    def parts(mode: str, device: str) -> list[tuple[int, bool]]:
        started.clear()
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '%s\\n' Default {mode}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        LocalJob(options, ["--device", device], lines).run_all()
        return [(len(part.lines), "Exclusive_Process" in part.apart) for part in started]

    assert parts("Default", "cuda") == parts("Exclusive_Process", "cpu") == [(2, False)]
    assert parts("Exclusive_Process", "cuda") == [(1, True)] * 2
    (tmp_path / "control").touch()  # of MPS's daemon
    assert parts("Exclusive_Process", "cuda") == [(2, False)]
