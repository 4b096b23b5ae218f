"""Submitters at once, and one that is killed at the worst moment, as real processes: no job is ever
doubled, and none is lost.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import environment
from tests.slurm.test_batch import JOBS, Cluster
from tests.slurm.test_job_script import Process, finish, start_process, wait_for

SLOW = 'touch "{0}/sbatch.begun"; while [ -e "{0}/hold" ]; do sleep 0.05; done; sleep 0.1\n'
TAKEN = "another job of this study is running, or being submitted; wait for it or stop it"
ALL = {f"small-{name}": 1 for name in JOBS}


class Submitters(Cluster):
    """The small study on the test cluster, and an sbatch that takes its time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        sbatch = install(folder) / "sbatch"
        head, rest = sbatch.read_text().split("\n", 1)
        sbatch.write_text(f"{head}\n{SLOW.format(folder)}{rest}")
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.env = {**environment(folder), "PATH": path}

    def start(self) -> Process:
        return start_process([sys.executable, "-m", "slurm", "submit", *self.words], self.env)

    def names(self) -> Counter[str]:
        """Of jobs in the queue; those on record are as many, and the same."""
        return Counter(self.queued() if (self.top / "queue").exists() else ())

    def recorded(self) -> Counter[str]:
        return Counter(f"small-{record['job']}" for record in self.records())


@pytest.fixture
def both(tmp_path: Path) -> Submitters:
    return Submitters(tmp_path)


def test_three_submitters_at_once_submit_every_job_once(both: Submitters) -> None:
    ended = [finish(process) for process in [both.start() for _ in range(3)]]
    assert 0 in {code for code, _, _ in ended}
    for code, _, err in ended:
        assert (code, err) == (0, "") or (code == 2 and err.strip().endswith(TAKEN))
    assert both.names() == both.recorded() == ALL


def test_a_submitter_killed_while_sbatch_works_doubles_nothing(both: Submitters) -> None:
    (both.top / "hold").touch()
    first = both.start()
    wait_for((both.top / "sbatch.begun").exists)
    first.kill()
    first.communicate(timeout=60)
    # sbatch lives on, has not told Slurm yet, and nobody may submit meanwhile
    assert not both.names()
    code, _, err = finish(both.start())
    assert (code, err.strip().endswith(TAKEN)) == (2, True)
    (both.top / "hold").unlink()
    wait_for(lambda: bool(both.names()))
    assert not both.recorded()
    wait_for(lambda: not both.work().folder.is_locked())
    code, out, err = finish(both.start())
    assert (code, err) == (0, "")
    assert "n001-b00  pending as job 101" in out.splitlines()
    assert both.names() == both.recorded() == ALL
