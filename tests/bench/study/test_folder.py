"""The folder of a study: nothing is added to a shipped one, and no file of it is torn."""

from __future__ import annotations

import resource
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


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    folder = StudyFolder(tmp_path, small(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with folder.lock():
        folder.record_job(Path("job-a.sh"), launches=1, runs=1)
        kept = (folder.path / "jobs.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (kept + 20, hard))
        try:
            with pytest.raises(UsageError, match=r"small/jobs\.jsonl: .*; make room, then do the"):
                folder.record_job(Path("job-a.sh"), launches=2, runs=1)
            with pytest.raises(UsageError, match=r"script\.sh cannot be written: File too large; "):
                write_whole(tmp_path / "script.sh", "x" * 9999)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [job.launches for job in folder.read_jobs()] == [1], "a torn line is read past"
        folder.record_job(Path("job-a.sh"), launches=3, runs=1)
    assert [job.launches for job in folder.read_jobs()] == [1, 3]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small", "study.toml"]
