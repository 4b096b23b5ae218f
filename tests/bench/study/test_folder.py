"""The folder of a study: nothing is added to a shipped one, and no file of it is torn."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.study.disk import write_whole
from bench.study.folder import StudyFolder
from tests.slurm.studies import ROOT, small

SHIPPED = sorted(path.parent.name for path in (ROOT / "results").glob("*/summary.json"))


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_added_to_a_shipped_study(name: str, tmp_path: Path) -> None:
    folder = ROOT / "results" / name
    assert len((folder / "SHIPPED").read_text().splitlines()) == 1
    before = sorted(folder.rglob("*"))
    rule = f"results/{name} comes with the project and is never added to; choose another --results"
    with pytest.raises(UsageError, match=rule):
        StudyFolder(ROOT / "results", small(tmp_path, name=f'name = "{name}"')).lock()
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[1]", "should be an object"),
        (b'{"script": "job-001.sh"}', "blocks"),
        (b'{"blocks": true}', "blocks=True"),
        (b'{"blocks": "8"}', "blocks='8'"),
        (b'{"blocks": 1000000000}', "blocks=1000000000"),
        (b'{"blocks": 1, "slurm_id": "x"}', "slurm_id='x'"),
        (b'{"blocks": 1, "after": 7}', "after=7"),
        (b'{"blocks": 1', "EOF"),
        (b"[" * 100_000, "recursion"),
        (b'{"blocks": 1, "job": "\xff"}', "invalid unicode"),
    ],
)
def test_an_odd_line_of_the_record_of_jobs_is_one_line(
    tmp_path: Path, line: bytes, why: str
) -> None:
    folder = StudyFolder(tmp_path, small(tmp_path))
    folder.path.mkdir()
    (folder.path / "jobs.jsonl").write_bytes(b'{"blocks": 2, "script": "a"}\n' + line + b"\n")
    rule = rf"jobs.jsonl, line 2, is no record of a job \(.*{why}"
    with pytest.raises(UsageError, match=rule) as refusal:
        folder.asked_blocks(small(tmp_path))
    assert str(refusal.value).endswith("; remove the line")


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """In a process of its own: its limit on files, which stands for the disk, cannot be raised."""
    code = f"""
import resource, signal, sys
from pathlib import Path
from bench.study.disk import write_whole
from bench.study.folder import StudyFolder
from tests.slurm.studies import small
from bench.config import UsageError
top = Path({str(tmp_path)!r})
folder = StudyFolder(top, small(top))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with folder.lock() as lock:
    folder.record_job(lock, Path("job-a.sh"), blocks=1, runs=1)
    kept = (folder.path / "jobs.jsonl").read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(kept) + 20, len(kept) + 20))
    for what in (
        lambda: folder.record_job(lock, Path("job-a.sh"), blocks=2, runs=1),
        lambda: write_whole(top / "script.sh", "x" * 9999),
    ):
        try:
            what()
        except UsageError as error:
            print(error)
assert (folder.path / "jobs.jsonl").read_bytes() == kept
assert sorted(p.name for p in top.iterdir()) == ["small", "study.toml"], list(top.iterdir())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jobs, script = done.stdout.splitlines()
    assert jobs.startswith(f"{tmp_path}/small/jobs.jsonl: ")
    failed = f"{tmp_path}/script.sh cannot be written: {os.strerror(errno.EFBIG)}"
    assert script == f"{failed}; make room, or choose another folder"


def test_a_file_that_is_there_is_still_told_apart(tmp_path: Path) -> None:
    write_whole(tmp_path / "x", "one")
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "x", "two", replace=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
