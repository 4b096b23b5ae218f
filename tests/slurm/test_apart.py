"""Runs that cannot take turns: they are launched one by one, end well, and their logs say why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.launch.machine import free_bytes
from bench.lifecycle import turn_table
from bench.record import Run, read_run
from slurm.driver import job as driver
from slurm.driver.launches import read_launches
from slurm.driver.options import JobOptions
from tests.bench.ranks import ROOT, environment
from tests.slurm.studies import SMALL, TINY
from tests.slurm.test_batch_script import BatchJob
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
TURNS = SMALL.replace("turns = false\n", "").replace("blocks = 2", "blocks = 1")


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


@pytest.mark.parametrize(
    ("site", "candidate", "why"),
    [
        ("vista", "horovod/mpi", "ibrun starts one world at a time"),
        ("testcluster", "ps/mpi", "servers on a node without ranks of theirs cannot be stopped"),
    ],
)
def test_what_a_cluster_rules_out(tmp_path: Path, site: str, candidate: str, why: str) -> None:
    text = TURNS.replace("seed =", f'reference = "ddp/mpi"\ncandidate = "{candidate}"\nseed =')
    job = BatchJob(tmp_path, site=site, text=text, cells=("ddp/mpi", candidate))
    code, out, err = job.finish()
    assert (code, err, len(job.runs)) == (0, "", 4), out
    assert one_by_one([read_run(run.log) for run in job.runs]) == why


class Launched:
    """Two runs of a rank each that are to take turns, and how the driver launches them.

    `alone`: one run, that has no partner.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, alone: bool = False) -> None:
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
            own_env={},
        )
        shared = ["--model", "tests.bench.tiny:plain", "--dataset", "digits", "--transport", "gloo"]
        shared += ["--warmup-steps", "3", "--windows", "2", "--batch-per-rank", "4"]
        lines = "run a 1 --backend ddp\n"
        lines = lines if alone else f"turns 2\n{lines}run b 1 --backend horovod\n"
        (folder / "runs").mkdir()
        self.job = driver.LocalJob(asked, shared, read_launches(lines))
        self.logs = [folder / "runs" / f"{name}.jsonl" for name in "ab"][: 2 - alone]

    def runs(self) -> list[Run]:
        self.job.run_all()
        return [read_run(log) for log in self.logs]


@pytest.mark.ranks
def test_a_node_without_room_for_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched, free = Launched(tmp_path, monkeypatch), free_bytes()
    assert free is not None
    launched.job.rank_bytes = dict.fromkeys("ab", int(0.95 * free / 2))  # a tenth is to be spared
    logs = launched.runs()
    needed = f"{0.95 * free / 2**30:.1f} GiB for 2 ranks"
    assert one_by_one(logs).startswith(f"memory: {needed} at once, and ")


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
def test_a_node_with_just_enough_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched, free = Launched(tmp_path, monkeypatch), free_bytes()
    assert free is not None
    launched.job.rank_bytes = dict.fromkeys("ab", int(0.85 * free / 2))
    logs = launched.runs()
    assert [run.state for run in logs] == ["ok", "ok"]
    assert [run.host["turns"]["turn"] for run in logs] == [0, 1]
    assert not any("apart" in run.exit for run in logs)


@pytest.mark.ranks
def test_what_a_rank_was_seen_to_need_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this job and in later ones, for runs of the same point."""
    launched = Launched(tmp_path, monkeypatch, alone=True)
    (run,) = launched.runs()
    seen = {"a": run.end["peak_memory_bytes"][0]}
    assert launched.job.rank_bytes == seen
    launched.logs[0].rename(launched.logs[0].with_name("b00-03-a.jsonl"))
    later = driver.LocalJob(launched.job.options, [], read_launches("run b01-00-a 1\n"))
    assert later.rank_bytes == seen


def test_a_point_not_seen_yet_may_need_what_the_largest_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, free = Launched(tmp_path, monkeypatch).job, free_bytes()
    assert free is not None
    for share, parts in ((0.5, [["a"], ["b"]]), (0.4, [["a", "b"]])):
        job.rank_bytes = {"b": int(share * free)}
        made = [[line.id for line in part.lines] for part in job.parts(job.launches[0])]
        assert made == parts


@pytest.mark.ranks
def test_a_node_whose_memory_cannot_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setattr(turn_table, "SHARED_MEMORY", missing)
    monkeypatch.setattr(driver, "SHARED_MEMORY", missing)
    why = f"{missing} cannot be written: No such file or directory"
    assert one_by_one(Launched(tmp_path, monkeypatch).runs()) == why
