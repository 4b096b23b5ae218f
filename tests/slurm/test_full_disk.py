"""A disk that fills up while a study is begun: one line, nothing lost, and the same command goes
on with room again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.test_cli import FEW, Cli
from tests.slurm.test_job_script import finish
from tests.slurm.test_two_submitters import ALL, Submitters

PAGE = 4096
PAGES = 64


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Path]:
    """A small file system for results/."""
    folder = tmp_path / "results"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={PAGES * PAGE}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def leave(results: Path, pages: int) -> Path:
    """Fill it but for so many pages; the file that does."""
    filler = results / "filler"
    with filler.open("wb", buffering=0) as file:
        for _ in range(PAGES):
            try:
                file.write(bytes(PAGE))
            except OSError:
                break
    with filler.open("rb+") as file:
        file.truncate(filler.stat().st_size - pages * PAGE)
    return filler


def complaint(err: str) -> str:
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert "No space left on device; make room, " in line
    return line


@pytest.mark.parametrize(("pages", "file"), [(2, "jobs.jsonl"), (6, "runs/b00")])
def test_a_run_goes_on_with_room_again(
    tmp_path: Path, results: Path, pages: int, file: str
) -> None:
    """Study, job script and jobs.jsonl take a page each, a run's log and output two."""
    cli = Cli(tmp_path, **FEW)
    filler = leave(results, pages)
    code, _, err = cli("run")
    assert (code, f"{cli.folder}/{file}" in complaint(err)) == (2, True)
    assert not [*results.rglob("*.tmp")]
    logs = {log: log.read_text() for log in (cli.folder / "runs").glob("*.jsonl")}
    done = {log: text for log, text in logs.items() if '"exit"' in text}
    assert bool(done) == (pages > 5)
    filler.unlink()
    code, out, err = cli("run")
    assert (code, err) == (0, "")
    assert "small: 4 runs: 4 ok" in out
    assert {log: log.read_text() for log in done} == done


def test_a_job_that_could_not_be_recorded_is_not_submitted_again(
    tmp_path: Path, results: Path
) -> None:
    cluster = Submitters(tmp_path)
    filler = leave(results, 3)  # for study.toml and a script of two pages
    code, _, err = finish(cluster.start())
    assert (code, f"{results}/small/jobs.jsonl: " in complaint(err)) == (2, True)
    assert cluster.names() == {"small-n001-b00": 1}
    assert not cluster.recorded()
    filler.unlink()
    code, out, err = finish(cluster.start())
    assert (code, err) == (0, "")
    assert "n001-b00  pending as job 101" in out
    assert cluster.names() == cluster.recorded() == ALL
