"""An installed copy: it holds every file of the rooms, and its command works anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("bench", "slurm", "plots")
BUILD = "from setuptools import build_meta; build_meta.build_wheel('.')"


def files(folder: Path) -> set[str]:
    found = {p.relative_to(folder) for room in ROOMS for p in (folder / room).rglob("*")}
    return {str(p) for p in found if (folder / p).is_file() and "__pycache__" not in p.parts}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder that holds what `pip install .` puts into site-packages."""
    source, site = (tmp_path_factory.mktemp(name) for name in ("source", "site"))
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-W", "ignore", "-c", BUILD]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(next(source.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    return site


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


def test_it_renders_a_shipped_study_describes_a_run_and_reports_on_logs(
    installed: Path, tmp_path: Path
) -> None:
    script = run(installed, tmp_path, "slurm", "render", "local")
    assert script.returncode == 0, script.stderr
    assert "results/mine/local" in script.stdout
    shown = run(installed, tmp_path, "bench", "--show-config", "--batch-per-rank", "4")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert 'backend = "single"' in shown.stdout
    report = run(
        installed,
        tmp_path,
        "plots",
        "report",
        str(ROOT / "results/batch-lr"),
        "--out",
        str(tmp_path),
    )
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.md").exists()
