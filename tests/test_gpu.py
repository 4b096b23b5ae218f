"""The plan for one GPU: every command is one that we have, in a fair order; one step runs here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.config import RunConfig, parse_argv
from bench.tools import timeline
from tests.gpu import __main__ as gpu
from tests.gpu.plan import STUDY, Step, plan

ROOT = Path(__file__).resolve().parents[1]


def config(step: Step) -> RunConfig:
    program, *words = step.words
    if words[0] == "timeline":
        return timeline.parse(words[1:])[1]
    return parse_argv(words[2:] if program == "tests.overhead" else words)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_command_is_taken(device: str) -> None:
    steps = list(plan(device))
    assert len({step.file for step in steps}) == len(steps), "no step overwrites another's file"
    steps = [step for step in steps if step.words[0] != "slurm"]
    assert all(config(step).device == device for step in steps)
    assert all(s.needs_horovod for s in steps if config(s).backend == "horovod")


def test_the_study_is_one_that_is_shipped_and_fits_one_gpu() -> None:
    (step,) = (s for s in plan("cuda") if s.words[0] == "slurm")
    assert step.needs_horovod
    assert step.words[:5] == ("slurm", "run", STUDY, "--site", "local-gpu")
    words = [sys.executable, "-m", "slurm", "render", *step.words[2:5]]
    script = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"^turns 3 ", script, re.MULTILINE)) == 6
    backends = re.findall(r"^run \S+ 1 --backend (\w+)", script, re.MULTILINE)
    assert Counter(backends) == {"single": 6, "ddp": 6, "horovod": 6}
    assert "  --device cuda\n" in script


def test_a_sweep_of_batches_and_precisions() -> None:
    sweep = [config(s) for s in plan("cuda") if s.name.startswith("sweep/")]
    assert {(run.precision, run.samples_per_rank) for run in sweep} == {
        (precision, batch)
        for precision in ("float32", "tf32", "bf16-mixed")
        for batch in (32, 128, 512)
    }
    assert {run.preprocessing for run in sweep} == {"resident"}


def test_what_has_no_time_is_left_out_and_said(tmp_path: Path) -> None:
    words = ["measure", "--device", "cpu", "--out", str(tmp_path / "out"), "--minutes", "0.4"]
    command = [sys.executable, "-m", "tests.gpu", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    session = json.loads((tmp_path / "out" / "session.json").read_text())
    states = Counter(one["state"] for one in session["steps"])
    assert states == {"left out: no time": len(list(plan("cpu")))}


def test_a_step_of_the_plan_runs(tmp_path: Path) -> None:
    step = next(s for s in plan("cpu", 32, "resnet18") if s.name.startswith("sweep/"))
    command = gpu._command(step, tmp_path)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / step.file).read_text().count('"event": "window"') == 8
