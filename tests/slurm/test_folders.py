"""Where studies go: beside the shipped ones and never into them, and never two at once."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from threading import Timer
from unittest.mock import Mock

import pytest

from bench.config import UsageError
from bench.study.disk import take_lock
from bench.study.folder import StudyFolder
from tests.slurm.conftest import Calls
from tests.slurm.stand_in import install
from tests.slurm.studies import small
from tests.slurm.test_job_script import Job


def test_a_script_by_hand_adds_to_no_shipped_study(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.folder.mkdir(parents=True)
    (job.folder / "SHIPPED").touch()
    rule = "comes with the project and is never added to; choose another --results, as results/mine"
    assert job.finish() == (2, "", f"error: {job.folder} {rule}\n")
    assert [path.name for path in job.folder.iterdir()] == ["SHIPPED"]


@pytest.mark.parametrize("slurm_id", ["", "7"])
def test_a_study_is_run_here_or_submitted_but_not_both(
    call: Calls, tmp_path: Path, slurm_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits in the queue holds no lock, and would write the same logs."""
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    folder = StudyFolder(tmp_path, "small")
    with folder.lock():
        job = {"slurm_id": slurm_id, "job": "n001-launch00"} if slurm_id else {}
        folder.record_job(Path("job-001.sh"), launches=2, site="first", **job)
    small(tmp_path, cells='cells = ["single", "ddp/gloo"]')
    verb, how = ("run", "submitted to Slurm") if slurm_id else ("submit", "started here, without ")
    where = ["--site", "local" if slurm_id else "testcluster", "--results", str(tmp_path)]
    line = call.refuse(verb, str(tmp_path / "study.toml"), *where)
    assert line.startswith(f"{folder.path} holds jobs that were {how}")
    assert line.endswith(": a study stays with one; choose another --results")
    assert not (tmp_path / "queue").exists()


def test_a_lock_is_waited_for_if_somebody_only_asks(tmp_path: Path) -> None:
    """For longer than a second, as he may be paused; a job that has the lock is an error."""
    folder = StudyFolder(tmp_path, "small")
    with folder.lock(), pytest.raises(UsageError, match="another job of this study is running"):
        folder.lock()
    with (folder.path / "jobs.jsonl").open() as asker:
        assert take_lock(asker, alone=False)
        Timer(3, asker.close).start()
        folder.lock().close()


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=none))
    rule = r"small/jobs.jsonl: this file system takes no locks \(No locks available\), so two jobs"
    with pytest.raises(UsageError, match=f"{rule} could run at once; choose --results on another"):
        StudyFolder(tmp_path, "small").lock()
