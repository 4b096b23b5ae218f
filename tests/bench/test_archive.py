"""An archive of logs: read whole, or refused in one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.record import archive

LOGS = {"runs/b.jsonl": b"2\n", "runs/a.jsonl": b"1\n", "runs/a.out": b"said\n"}


def test_files_are_those_of_the_archive_and_those_beside_it(tmp_path: Path) -> None:
    """An archive that takes another's place is read anew; its bytes depend on the files alone."""
    (tmp_path / archive.NAME).write_bytes(archive.pack(LOGS, 7))
    runs = tmp_path / "runs"
    assert archive.logs_in(runs) == [runs / "a.jsonl", runs / "b.jsonl"]
    runs.mkdir()
    (runs / "c.jsonl").write_bytes(b"3\n")
    assert list(map(archive.read_file, archive.logs_in(runs))) == [b"1\n", b"2\n", b"3\n"]
    assert (archive.holds(runs / "a.out"), archive.holds(runs / "b.out")) == (True, False)
    with pytest.raises(FileNotFoundError):
        archive.read_file(runs / "d.jsonl")
    (tmp_path / archive.NAME).unlink()
    subprocess.run(["tar", "czf", archive.NAME, "./runs"], cwd=tmp_path, check=True)
    assert archive.contents(tmp_path) == {"runs/c.jsonl": b"3\n"}
    assert archive.pack(dict(reversed(LOGS.items())), 7) == archive.pack(LOGS, 7)


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: b"x"])
def test_a_damaged_archive_is_one_line(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    (tmp_path / archive.NAME).write_bytes(damage(archive.pack(LOGS, 7)))
    with pytest.raises(UsageError, match=r"logs.tar.gz cannot be unpacked \(.+\); take it from a"):
        archive.logs_in(tmp_path / "runs")
