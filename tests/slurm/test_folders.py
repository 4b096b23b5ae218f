"""Where studies go: beside the shipped ones and never into them, never where nodes do not look, and
never two at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.study.disk import write_whole
from bench.study.folder import RESULTS, StudyFolder
from bench.study.plan import plan
from slurm.load import read_site
from slurm.render import render_job
from slurm.submit import SHARED, not_shared
from tests.slurm.calls import Calls
from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import environment
from tests.slurm.studies import ROOT, changed, small

CURE = "comes with the project and is never added to; choose another --results, as results/mine"


def by_hand(folder: Path) -> str:
    """Run a script of the small study, and return the one line in which it refuses."""
    study = small(folder)
    path = folder / "results" / "small"
    script = render_job(study, "", read_site("local"), plan(study, 1, path / "runs")[0], path)
    command, env = ["bash", "-c", script], environment(folder)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_the_makefile_names_the_folder_of_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^RESULTS \?= (.*)$", makefile, re.MULTILINE) == [str(RESULTS)]


def test_nothing_is_added_to_a_shipped_study(call: Calls, tmp_path: Path) -> None:
    for words in ("run local", "submit emulated-cluster --site tests/cluster/shaped.toml"):
        line = call.refuse(*words.split(), "--results", "results", "--blocks", "20")
        assert line == f"results/{words.split()[1]} {CURE}"
    folder = tmp_path / "results" / "small"
    folder.mkdir(parents=True)
    (folder / "SHIPPED").touch()
    assert by_hand(tmp_path) == f"error: {folder} {CURE}\n"
    assert [path.name for path in folder.iterdir()] == ["SHIPPED"]


@pytest.mark.parametrize("what", ["results", "this folder", "environment"])
def test_what_a_node_has_of_its_own_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SHARED)
    near, far = tmp_path / "near", tmp_path / "far"
    (near / "env").mkdir(parents=True)
    (far / "env").mkdir(parents=True)
    (far / "link").symlink_to(near / "env")
    places = {"this folder": far, "environment": far / "env", "results": far}
    places[what] = far / "link" if what == "environment" else near
    checkout, venv, results = places.values()
    monkeypatch.chdir(checkout)
    site = changed(read_site("testcluster"), paths__node_local=[str(near)], setup__venv=str(venv))
    rule = rf"{what}.* {near}.* lies below {near}, of which every node of site 'testcluster' has"
    assert re.search(rule, not_shared(site, results))
    elsewhere = changed(site, paths__node_local=[str(tmp_path / "elsewhere")])
    assert not not_shared(elsewhere, results)
    monkeypatch.setenv(SHARED, f"/nowhere:{near}")
    assert not not_shared(site, results)


@pytest.mark.parametrize("slurm_id", ["", "7"])
def test_a_study_is_run_here_or_submitted_but_not_both(
    call: Calls, tmp_path: Path, slurm_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits in the queue holds no lock, and would write the same logs."""
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    folder = StudyFolder(tmp_path, "small")
    with folder.lock() as lock:
        job = {"slurm_id": slurm_id, "job": "n001-b00"} if slurm_id else {}
        folder.record_job(lock, Path("job-001.sh"), blocks=2, site="first", **job)
    small(tmp_path, cells='cells = ["single", "ddp/gloo"]')
    verb, how = ("run", "submitted to Slurm") if slurm_id else ("submit", "started here, without ")
    where = ["--site", "local" if slurm_id else "testcluster", "--results", str(tmp_path)]
    line = call.refuse(verb, str(tmp_path / "study.toml"), *where)
    assert line.startswith(f"{folder.path} holds jobs that were {how}")
    assert line.endswith("(site 'first'): a study stays with one; choose another --results")
    assert not (tmp_path / "queue").exists()


def test_a_torn_record_is_read_past_and_taken_away(tmp_path: Path) -> None:
    folder, file = StudyFolder(tmp_path, "small"), tmp_path / "small" / "jobs.jsonl"
    for torn, kept in (('{"script": "job-00', [2]), ('{"blocks": 4, "site": "x"}', [2, 4])):
        with folder.lock() as lock:
            file.write_text(f'{{"blocks": 2}}\n{torn}')
            assert [job.blocks for job in folder.read_jobs()] == kept
            folder.record_job(lock, Path("job-001.sh"), blocks=6)
        assert [job.blocks for job in folder.read_jobs()] == [*kept, 6]
        assert file.read_text().endswith("}\n")


def test_two_writers_of_one_file_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As jobs on two nodes, whose processes have the same number."""
    path, whole = tmp_path / "study.toml", Path.replace

    def replace(temporary: Path, target: Path) -> Path:
        monkeypatch.undo()
        write_whole(path, "other")
        return whole(temporary, target)

    monkeypatch.setattr(Path, "replace", replace)
    write_whole(path, "mine")
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    folder = StudyFolder(tmp_path, "small")
    monkeypatch.setattr(fcntl, "flock", none)
    rule = r"small/jobs.jsonl: this file system takes no locks \(No locks available\), so two jobs"
    with pytest.raises(UsageError, match=f"{rule} could run at once; choose --results on another"):
        folder.lock()
    assert not folder.is_locked()  # who only looks may


def test_a_deleted_record_of_jobs_lets_no_second_job_in(tmp_path: Path) -> None:
    """It is the lock: whoever holds it goes on, and nobody could see that."""
    folder = StudyFolder(tmp_path / "results", "small")
    with folder.lock():
        folder.keep_study("x")
        (folder.path / "jobs.jsonl").unlink()
        lost = "jobs.jsonl is gone, and with it the lock of a job that may still be running"
        cure = f"{lost}; if none is: touch {folder.path}/jobs.jsonl"
        assert by_hand(tmp_path) == f"error: {folder.path}/{cure}\n"
    (folder.path / "jobs.jsonl").touch()
    folder.lock().close()
