"""Launches under srun that must not be measured: each is refused in words that name the cure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.steps import CELLS, SHORT, bench, cell, run

pytestmark = pytest.mark.cluster


def doctor(
    *options: str,
    srun: tuple[str, ...] = ("-N2", "-n2", "-w", "n1,n2", "--mpi=none"),
    env: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    words = ["--model", "mlp", "--dataset", "digits", "--world-size", "2", *options]
    return run(["srun", *srun, "env", *env, *bench("doctor", *words)], 150)


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [
        line
        for line in done.stderr.splitlines()
        if line.startswith("error: ") and "CANCELLED" not in line
    ]


def test_the_doctor_finds_a_fit_launch(tmp_path: Path) -> None:
    where = ("-N2", "-n2", "-w", "n1,n2", "--mpi=pmix")
    for place in CELLS:
        done = doctor(*cell(*place, 2), "--rendezvous-dir", str(tmp_path), srun=where)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"ok       {'/'.join(place):12} parity holds: equal bit for bit" in done.stdout


def test_the_doctor_refuses_what_cannot_meet(tmp_path: Path) -> None:
    """The wrong plug-in, a folder that is not shared, and the loopback between nodes."""
    done = doctor(*cell("ddp", "mpi", 2), "--rendezvous-dir", str(tmp_path))
    assert "srun --mpi=pmix" in done.stdout
    assert "sees a world of 1" in done.stderr
    gloo = (*cell("ddp", "gloo", 2), "--rendezvous-timeout-s", "10", "--rendezvous-dir")
    done = doctor(*gloo, "/tmp")
    assert "do they all see" in done.stderr
    done = doctor(*gloo, str(tmp_path), env=("GLOO_SOCKET_IFNAME=lo",))
    assert "'lo' does not leave this host, and ranks are on several; unset it" in done.stdout
    assert done.returncode != 0


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
