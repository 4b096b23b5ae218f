"""A study's archive: whole, always the same bytes, and refused where the folder is not."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.record import archive
from bench.study.plan import plan
from plots.__main__ import main
from slurm.__main__ import main as slurm
from tests.plots import logs
from tests.slurm.studies import small

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a complete study of one launch as `python -m slurm run` leaves it, with report."""
    study = small(tmp_path, launches="launches = 1")
    folder = tmp_path / "results" / "small"
    for run in plan(study, 1, folder / "runs")[0]:
        place = {**logs.host(run.config.world_size), "started": "2026-11-20T16:30:11+00:00"}
        config = run.config.model_copy(update={"study_sha256": study.sha256})
        logs.write(run.log, config, 0.1 * config.samples_per_rank / 16, provenance=place)
        run.log.with_suffix(".out").write_text("window 2/2\n")
    shutil.copy(tmp_path / "study.toml", folder / "study.toml")
    (folder / "job-001.sh").write_text("#!/bin/sh\n")
    job = (
        '{"script": "job-001.sh", "time": "2026-11-20T16:30:10+00:00", "launches": 1, "runs": 7}\n'
    )
    (folder / "jobs.jsonl").write_text(job)
    write_job(folder, "begin", "end")
    assert main(["report", str(folder)]) == 0
    return folder


def write_job(folder: Path, *events: str) -> None:
    """Write what job 7, of launch 0, said of itself; its last line is torn."""
    (folder / "jobs").mkdir(exist_ok=True)
    lines = [json.dumps({"event": event, "job": "7", "restart": 0}) + "\n" for event in events]
    (folder / "jobs" / "n001-launch00.jsonl").write_text("".join([*lines, '{"event": "cal']))


def first_log(folder: Path) -> Path:
    return min((folder / "runs").glob("launch00-00-*.jsonl"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def test_a_bundle_lists_every_file_has_a_fresh_report_and_the_same_bytes_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "runs" / "user_code" / "0a1b").mkdir(parents=True)
    (folder / "runs" / "user_code" / "0a1b" / "net.py").write_text("a user's model")
    before = files_of(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "report.md").write_text("stale")
    bundle = folder.parent / "small.tar.gz"
    assert main(["bundle", str(folder)]) == 0
    once = bundle.read_bytes()
    for path in folder.rglob("*"):
        path.touch()
    assert main(["bundle", str(folder), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "small.tar.gz").read_bytes() == once
    with tarfile.open(bundle) as tar:
        assert {info.mtime for info in tar} == {1795192211}, "when the newest run began"
        files = ((info.name, tar.extractfile(info)) for info in tar)
        packed = {name.removeprefix("small/"): file.read() for name, file in files if file}
    manifest = json.loads(packed.pop("MANIFEST.json"))
    assert packed == before
    assert {x["path"]: (x["bytes"], x["sha256"]) for x in manifest["files"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in packed.items()
    }
    bundle.write_bytes(b"mine")
    assert main(["bundle", str(folder)]) == 2
    assert "is there with other contents; remove it or name another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (lambda folder: (folder / "study.toml").unlink(), "there is no study.toml"),
        (lambda folder: write_job(folder, "begin"), "job 7 has begun and not ended; wait for it"),
    ],
)
def test_a_folder_that_is_no_whole_study_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], spoiled: Callable[[Path], None], words: str
) -> None:
    spoiled(folder)
    assert main(["bundle", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folder}")
    assert words in error
    assert not (folder.parent / "small.tar.gz").exists()


def test_archived_logs_are_read_as_if_they_lay_in_the_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(folder, "begin")
    assert main(["bundle", "--in-place", str(folder)]) == 2, "under a job"
    assert main(["bundle", "--in-place", str(tmp_path)]) == 2
    assert "holds no logs to archive" in capsys.readouterr().err
    write_job(folder, "begin", "end")
    before = files_of(folder)
    assert main(["bundle", "--in-place", str(folder)]) == 0
    after = files_of(folder)
    packed = archive.contents(folder)
    assert {**after, **packed} == {**before, archive.NAME: after[archive.NAME]}
    assert {path.partition("/")[0] for path in packed} == {"runs", "jobs", "job-001.sh"}
    assert not packed.keys() & after.keys()
    assert main(["report", str(folder)]) == main(["bundle", "--in-place", str(folder)]) == 0
    assert files_of(folder) == after, "the same page, the same archive"
    capsys.readouterr()
    assert slurm(["status", str(folder)]) == 0
    assert "7 runs: 7 ok" in capsys.readouterr().out
    subprocess.run(["tar", "xzf", archive.NAME], cwd=folder, check=True)
    first_log(folder).write_text("{}\n")
    assert main(["bundle", str(folder)]) == 2
    assert f"{first_log(folder)} is another file in {archive.NAME} bes" in capsys.readouterr().err
