"""Launches under srun that must not be measured: each is refused in words that name the cure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.ranks import thorough
from tests.cluster.namespace import ROOT
from tests.cluster.steps import CELLS, SHORT, bench, cell, run

pytestmark = pytest.mark.cluster

PRETENDED = ROOT / "tests/cluster/pretended"


def doctor(
    folder: Path,
    *options: str,
    srun: tuple[str, ...] = ("-N2", "-n2", "-w", "n1,n2", "--mpi=none"),
    env: tuple[str, ...] = (),
) -> dict[str, dict[str, str]]:
    """The doctor's findings under srun, by name; of two with one name the graver."""
    done = run(
        [
            "srun",
            *srun,
            "env",
            *env,
            *bench("doctor", "--json", "--rendezvous-dir", str(folder), *options),
        ],
        150,
    )
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == any(finding["level"] == "failure" for finding in findings), (
        done.stderr
    )
    grave = ("ok", "warning", "failure")
    return {
        finding["name"]: finding
        for finding in sorted(findings, key=lambda finding: grave.index(finding["level"]))
    }


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [
        line
        for line in done.stderr.splitlines()
        if line.startswith("error: ") and "CANCELLED" not in line
    ]


def test_the_doctor_finds_a_fit_launch(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--world-size", "2", srun=("-N2", "-n2", "-w", "n1,n2", "--mpi=pmix"))
    assert {finding["level"] for finding in found.values()} <= {"ok", "warning"}, found
    assert "2 on 2 host(s)" in found["ranks"]["text"]
    for backend, transport in CELLS:
        assert "2 ranks average" in found[f"{backend}/{transport}"]["text"]


def test_the_doctor_refuses_the_wrong_plug_in(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--cells", "ddp/mpi,ddp/gloo")
    assert "srun --mpi=pmix" in found["MPI"]["cure"]
    assert found["ddp/mpi"]["level"] == "failure"
    assert "sees a world of 1" in found["ddp/mpi"]["text"]
    assert found["ddp/gloo"]["level"] == "ok"


def test_the_doctor_refuses_a_folder_that_is_not_shared() -> None:
    found = doctor(Path("/tmp"), "--limit-s", "15", "--cells=")
    assert "rank 1 of 2 did not report" in found["ranks"]["text"]
    assert "the step has n[1-2], heard were n1" in found["ranks"]["text"]
    assert "--rendezvous-dir" in found["ranks"]["cure"]


def test_the_doctor_refuses_the_loopback_between_nodes(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--cells=", env=("GLOO_SOCKET_IFNAME=lo",))
    assert "'lo' does not leave this host" in found["interface"]["text"]
    assert found["interface"]["cure"] == "unset it, or name one of eth0"


def test_the_doctor_refuses_another_world(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--world-size", "4", "--cells=")
    assert "world_size=4 was asked for, but srun: 2 rank(s)" in found["launcher"]["text"]


@pytest.mark.parametrize(
    ("asked", "level", "text"),
    [
        thorough(["--gpus-per-node=2"], "ok", "one for each of 4 ranks"),
        thorough(["--gpus-per-task=1"], "ok", "one for each of 4 ranks"),
        (["--gpus-per-node=1"], "failure", "4 ranks would use 2 GPU(s)"),
    ],
)
def test_the_doctor_refuses_a_gpu_for_two_ranks(
    tmp_path: Path, asked: list[str], level: str, text: str
) -> None:
    """Slurm really grants them, in name; that torch sees what was granted is pretended."""
    place = ("-N2", "-n4", "--ntasks-per-node=2", "-w", "n1,n2", "--mpi=none", *asked)
    found = doctor(tmp_path, "--cells=", srun=place, env=(f"PYTHONPATH={PRETENDED}",))
    assert (found["GPUs"]["level"], found["GPUs"]["text"]) == (level, text)


@pytest.mark.parametrize("backend", ["ddp", "horovod"])
def test_silent_worlds_of_one_rank_are_refused(tmp_path: Path, backend: str) -> None:
    log = tmp_path / "run.jsonl"
    done = run(
        [
            "srun",
            "-K1",
            "-N2",
            "-n2",
            "--mpi=none",
            *bench(*SHORT, *cell(backend, "mpi", 2), "--log-path", str(log)),
        ]
    )
    assert done.returncode != 0
    lines = errors(done)
    assert lines
    for line in lines:  # one, unless a busy machine keeps rank 0 from speaking first
        assert "srun started 2 ranks, but MPI" in line
        assert "srun --mpi=pmix" in line


def test_the_wrong_number_of_ranks_is_refused() -> None:
    done = run(["srun", "-N2", "-n3", *bench(*SHORT, *cell("ddp", "gloo", 2))])
    assert done.returncode != 0
    (line,) = errors(done)
    assert "srun started 3 ranks; use --world-size 3 or start 2 ranks" in line


def test_ranks_on_two_nodes_without_a_shared_folder_are_refused() -> None:
    done = run(["srun", "-N2", "-n2", *bench(*SHORT, *cell("ddp", "gloo", 2))])
    assert done.returncode != 0
    assert "use --rendezvous-dir, or --log-path on shared storage" in errors(done)[0]


def test_a_job_script_that_forgot_srun_is_told(tmp_path: Path) -> None:
    command = " ".join(bench(*SHORT, *cell("ddp", "gloo", 2)))
    done = run(["sbatch", "--wait", "-N2", "-n2", f"--output={tmp_path}/out", "--wrap", command])
    assert done.returncode == 2
    assert "this is the batch shell, the step needs srun" in (tmp_path / "out").read_text()


def test_a_study_below_tmp_is_refused_because_its_jobs_would_vanish() -> None:
    folder = Path("/tmp/of-the-login-node")
    done = run(
        [
            sys.executable,
            "-m",
            "slurm",
            "submit",
            "smoke",
            "--site",
            "testcluster",
            "--results",
            str(folder),
        ]
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"error: the results folder {folder}/smoke lies below /tmp, of which every node of site "
        f"'testcluster'"
    )
    assert len(done.stderr.splitlines()) == 1
    assert (
        run(["srun", "-N1", "-w", "n1", "mkdir", str(folder)]).returncode == 0
    )  # and nodes do have one of their own
    assert not folder.exists()
    assert run(["srun", "-N1", "-w", "n1", "rmdir", str(folder)]).returncode == 0


def test_sbatch_takes_a_quoted_option_whole(tmp_path: Path) -> None:
    """As `access.extra` allows it: with blanks, and a '#' that ends no line."""
    script, out = tmp_path / "job.sh", tmp_path / "out"
    script.write_text(
        '#!/bin/bash\n#SBATCH --comment="a # b" --nodes=2\nsqueue -h -j $SLURM_JOB_ID -o "%k|%D"\n'
    )
    assert run(["sbatch", "--wait", f"--output={out}", str(script)]).returncode == 0
    assert out.read_text() == "a # b|2\n"
