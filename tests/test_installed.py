"""An installed copy: it holds every file of the rooms, and its command works anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bench import version

ROOT = Path(__file__).parents[1]
ROOMS = ("bench", "slurm", "plots")
BUILD = """
import os, sys, tarfile
from setuptools import build_meta
unpacked = sys.argv[1]  # setuptools replaces them
build_meta.build_wheel("from-tree")
archive = build_meta.build_sdist("archive")
tarfile.open(f"archive/{archive}").extractall(unpacked, filter="data")
os.chdir(os.path.join(unpacked, archive.removesuffix(".tar.gz")))
build_meta.build_wheel(unpacked)
"""


def files(folder: Path) -> set[str]:
    found = {p.relative_to(folder) for room in ROOMS for p in (folder / room).rglob("*")}
    return {str(p) for p in found if (folder / p).is_file() and "__pycache__" not in p.parts}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel made from the tree, and the one made from its source archive."""
    source, unpacked = (tmp_path_factory.mktemp(name) for name in ("source", "unpacked"))
    for room in ROOMS:
        shutil.copytree(
            ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(unpacked)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    return next((source / "from-tree").glob("*.whl")), next(unpacked.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what `pip install .` puts into site-packages."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(site)
    return site


def test_the_source_archive_makes_the_same_wheel(wheels: tuple[Path, Path]) -> None:
    from_tree, from_archive = (
        {(entry.filename, entry.CRC) for entry in zipfile.ZipFile(wheel).infolist()}
        for wheel in wheels
    )
    assert from_archive == from_tree
    assert from_tree


def run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )


def test_every_file_of_the_rooms_is_in_it(installed: Path) -> None:
    pages = {f"bench/{page}.md" for page in ("EXERCISE", "LEAVING_HOROVOD", "WHY_SLOW")}
    pages |= {f"{room}/README.md" for room in ROOMS}
    assert files(ROOT) - files(installed) <= pages
    assert "Name: horovod-vs-ddp" in next(installed.glob("*.dist-info/METADATA")).read_text()


def test_it_renders_a_shipped_study_and_reports_on_logs(installed: Path, tmp_path: Path) -> None:
    script = run(installed, tmp_path, "slurm", "render", "local")
    assert script.returncode == 0, script.stderr
    assert "results/mine/local" in script.stdout
    report = run(
        installed, tmp_path, "plots", "report", str(ROOT / "results/local"), "--out", str(tmp_path)
    )
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.md").exists()


def test_it_describes_a_run(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, tmp_path, "bench", "--show-config", "--batch-per-rank", "4")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert 'backend = "single"' in shown.stdout


def test_set_up_brings_the_rooms_to_any_folder(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", "import plots; print(plots.version())"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{version()}\n", "")
