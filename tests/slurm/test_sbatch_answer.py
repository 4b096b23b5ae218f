"""What sbatch says of a job that it took: its id behind a greeting, or no id at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm import slurm_commands
from slurm.slurm_commands import UnknownIdError

GREETING = "-----\nWelcome to the Example Supercomputer, 2026\n--> Verifying job...OK\n"


def answers(folder: Path, monkeypatch: pytest.MonkeyPatch, sbatch: str, squeue: str) -> None:
    """Put an sbatch and a squeue that print these texts first on PATH."""
    for name, text in (("sbatch", sbatch), ("squeue", squeue)):
        (folder / f"{name}.txt").write_text(text)
        (folder / name).write_text(f"#!/bin/sh\ncat {folder}/{name}.txt\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_commands, "_TRIES", 1)


def submit(folder: Path) -> str:
    script = folder / "job.sh"
    script.touch()
    with (folder / "lock").open("w") as lock:
        return slurm_commands.submit(script, folder, lock)


@pytest.mark.parametrize(
    "said",
    [
        "4101\n",
        f"{GREETING}4101;cluster\n\n",
        "77\nallocation 12 of 40 used\n4101\n",
        f"4101\n{GREETING}",
        f"{GREETING}Submitted batch job 4101\n",
        "Submitted batch job 4101 on cluster big\n",
    ],
)
def test_the_last_line_that_is_an_id_is_the_jobs(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(tmp_path, monkeypatch, said, "")
    assert submit(tmp_path) == "4101"


def test_without_an_id_the_queue_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "job.sh"
    queue = f"4100|other|PENDING|/elsewhere/job.sh\n4101|mine|PENDING|{script}\n"
    answers(tmp_path, monkeypatch, GREETING, queue)
    assert submit(tmp_path) == "4101"


def test_a_job_whose_id_nobody_tells_is_never_called_not_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(tmp_path, monkeypatch, GREETING, "")
    with pytest.raises(UnknownIdError, match=r"^job.sh is submitted, id not known: sbatch said"):
        submit(tmp_path)
