"""Where studies go: beside the shipped ones and never into them, never where nodes do not look, and
never two at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from bench.config import UsageError
from bench.study.folder import StudyFolder
from bench.study.plan import plan
from slurm.render import render_job
from slurm.site import read_site
from tests.slurm.conftest import Calls
from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import environment
from tests.slurm.studies import ROOT, small

CURE = "comes with the project and is never added to; choose another --results, as results/mine"


def test_a_script_by_hand_adds_to_no_shipped_study_and_to_none_without_a_lock(
    call: Calls, tmp_path: Path
) -> None:
    words = "submit emulated-cluster --site tests/cluster/shaped.toml --results results"
    assert call.refuse(*words.split()) == f"results/emulated-cluster {CURE}"
    study, folder = small(tmp_path), tmp_path / "results" / "small"
    script = render_job(study, "", read_site("local"), plan(study, 1, folder / "runs")[0], folder)

    def by_hand() -> str:
        command, env = ["bash", "-c", script], environment(tmp_path)
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    folder.mkdir(parents=True)
    (folder / "SHIPPED").touch()
    assert by_hand() == f"error: {folder} {CURE}\n"
    assert [path.name for path in folder.iterdir()] == ["SHIPPED"]
    (folder / "SHIPPED").unlink()
    (folder / "study.toml").touch()  # the record of jobs is gone
    lost = "jobs.jsonl is gone, and with it the lock of a job that may still be running"
    assert by_hand() == f"error: {folder}/{lost}; if none is: touch {folder}/jobs.jsonl\n"


@pytest.mark.parametrize("slurm_id", ["", "7"])
def test_a_study_is_run_here_or_submitted_but_not_both(
    call: Calls, tmp_path: Path, slurm_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits in the queue holds no lock, and would write the same logs."""
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    folder = StudyFolder(tmp_path, "small")
    with folder.lock() as lock:
        job = {"slurm_id": slurm_id, "job": "n001-launch00"} if slurm_id else {}
        folder.record_job(lock, Path("job-001.sh"), launches=2, site="first", **job)
    small(tmp_path, cells='cells = ["single", "ddp/gloo"]')
    verb, how = ("run", "submitted to Slurm") if slurm_id else ("submit", "started here, without ")
    where = ["--site", "local" if slurm_id else "testcluster", "--results", str(tmp_path)]
    line = call.refuse(verb, str(tmp_path / "study.toml"), *where)
    assert line.startswith(f"{folder.path} holds jobs that were {how}")
    assert line.endswith("(site 'first'): a study stays with one; choose another --results")
    assert not (tmp_path / "queue").exists()


def test_a_torn_record_is_read_past_and_taken_away(tmp_path: Path) -> None:
    folder, file = StudyFolder(tmp_path, "small"), tmp_path / "small" / "jobs.jsonl"
    with folder.lock() as lock:
        file.write_text('{"launches": 2}\n{"script": "job-00')
        assert [job.launches for job in folder.read_jobs()] == [2]
        folder.record_job(lock, Path("job-001.sh"), launches=6)
    assert [job.launches for job in folder.read_jobs()] == [2, 6]


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=none))
    rule = r"small/jobs.jsonl: this file system takes no locks \(No locks available\), so two jobs"
    with pytest.raises(UsageError, match=f"{rule} could run at once; choose --results on another"):
        StudyFolder(tmp_path, "small").lock()
