"""An archive of logs: read whole, or refused in one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.record import archive

LOGS = {"runs/b.jsonl": b"2\n", "runs/a.jsonl": b"1\n", "runs/a.out": b"said\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / archive.NAME).write_bytes(archive.pack(LOGS, 7))
    return tmp_path


def test_files_are_those_of_the_archive_and_those_beside_it(folder: Path) -> None:
    runs = folder / "runs"
    assert archive.logs_in(runs) == [runs / "a.jsonl", runs / "b.jsonl"]
    runs.mkdir()
    (runs / "c.jsonl").write_bytes(b"3\n")
    (runs / "a.jsonl").write_bytes(b"1\n")
    assert list(map(archive.read_file, archive.logs_in(runs))) == [b"1\n", b"2\n", b"3\n"]
    assert (archive.holds(runs / "a.out"), archive.holds(runs / "b.out")) == (True, False)
    assert archive.logs_in(folder / "jobs") == []
    with pytest.raises(FileNotFoundError):
        archive.read_file(runs / "d.jsonl")
    (runs / "a.jsonl").write_bytes(b"2\n")
    with pytest.raises(UsageError, match=r"a.jsonl is another file in logs.tar.gz beside it"):
        archive.read_file(runs / "a.jsonl")
    # an archive that takes another's place is read anew; its bytes depend on the files alone
    (folder / archive.NAME).unlink()
    (folder / archive.NAME).write_bytes(archive.pack({"runs/d.jsonl": b"4\n"}, 7))
    assert archive.contents(folder) == {"runs/d.jsonl": b"4\n"}
    assert archive.pack(dict(reversed(LOGS.items())), 7) == archive.pack(LOGS, 7)


@pytest.mark.parametrize("damage", ["torn", "changed", "none"])
def test_a_damaged_archive_is_one_line(folder: Path, damage: str) -> None:
    path = folder / archive.NAME
    data = path.read_bytes()
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
    path.write_bytes({"torn": data[:-40], "changed": changed, "none": b"x"}[damage])
    with pytest.raises(UsageError, match=r"logs.tar.gz cannot be unpacked \(.+\); take it from a"):
        archive.logs_in(folder / "runs")


def test_what_tar_makes_is_read(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.jsonl").write_bytes(b"1\n")
    subprocess.run(["tar", "czf", archive.NAME, "./runs"], cwd=tmp_path, check=True)
    assert archive.contents(tmp_path) == {"runs/a.jsonl": b"1\n"}
