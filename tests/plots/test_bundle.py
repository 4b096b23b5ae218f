"""A study's archive: whole, always the same bytes, and refused where the folder is not."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
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
        place = logs.host(run.config.world_size, started="2026-11-20T16:30:11+00:00")
        seconds = 0.1 * run.config.samples_per_rank / 16
        logs.write(run.log, run.config, seconds, provenance=place)
        run.log.with_suffix(".out").write_text("window 2/2\n")
    shutil.copy(tmp_path / "study.toml", folder)
    (folder / "job-001.sh").write_text("#!/bin/sh\n")
    job = {"script": "job-001.sh", "time": "2026-11-20T16:30:10+00:00", "launches": 1, "runs": 7}
    (folder / "jobs.jsonl").write_text(json.dumps(job) + "\n")
    (folder / "jobs").mkdir()
    lines = [json.dumps({"event": x, "job": "7", "restart": 0}) for x in ("begin", "end")]
    torn = '{"event": "cal'
    (folder / "jobs" / "n001-launch00.jsonl").write_text("\n".join([*lines, torn]))
    assert main(["report", str(folder)]) == 0
    return folder


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
        tar.extractall(tmp_path / "unpacked", filter="data")
    packed = files_of(tmp_path / "unpacked" / "small")
    manifest = json.loads(packed.pop("MANIFEST.json"))
    assert packed == before
    assert {x["path"]: (x["bytes"], x["sha256"]) for x in manifest["files"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in packed.items()
    }
    bundle.write_bytes(b"mine")
    assert main(["bundle", str(folder)]) == 2
    assert "is there with other contents; replace it with --force" in capsys.readouterr().err
    assert main(["bundle", str(folder), "--force"]) == 0
    assert bundle.read_bytes() == once


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("study.toml", "launches", "margin = 0.2\nlaunches", "differs from the one that 7 of 7"),
        ("runs/*.jsonl", '"pid": ', '"pid": 9', "is damaged: the log was"),
        ("runs/*.jsonl", '(?s)[^\n]*"event": "end".*', "", "has no end; wait for its job"),
        ("jobs/*", '.*"end".*\n', "", "job 7 has begun and not ended; wait for it"),
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, words: str
) -> None:
    path = min(folder.glob(file))
    path.write_text(re.sub(old, new, path.read_text(), count=1))
    assert main(["bundle", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folder}")
    assert words in error
    assert not (folder.parent / "small.tar.gz").exists()


def test_archived_logs_are_read_as_if_they_lay_in_the_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", "--in-place", str(folder.parent)]) == 2
    assert "holds no logs to archive" in capsys.readouterr().err
    assert main(["bundle", str(folder.parent)]) == 2
    assert "there is no study.toml" in capsys.readouterr().err
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
    log = min((folder / "runs").glob("*.jsonl"))
    log.write_text("{}\n")
    assert main(["bundle", str(folder)]) == 2
    assert f"{log} is another file in {archive.NAME} bes" in capsys.readouterr().err
