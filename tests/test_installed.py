"""An installed copy: it holds every file of the rooms, and its command works anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("bench", "slurm", "plots")
BUILD = "from setuptools import build_meta; build_meta.build_wheel('.')"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


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


def test_it_is_whole_renders_a_shipped_study_describes_a_run_and_reports_on_logs(
    installed: Path, tmp_path: Path
) -> None:
    pages = {f"bench/{page}.md" for page in ("EXERCISE", "LEAVING_HOROVOD", "WHY_SLOW")}
    assert files(ROOT) - files(installed) <= pages | {f"{room}/README.md" for room in ROOMS}

    def printed(copy: Path, *words: str) -> str:
        """Run a command of this copy in a folder of no project; it prints nothing wrong."""
        command, env = [sys.executable, "-P", "-m", *words], {"PYTHONPATH": str(copy)}
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **env}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "results/mine/local" in printed(installed, "slurm", "render", "local")
    shown = printed(installed, "bench", "--show-config", "--batch-per-rank", "4")
    assert 'backend = "single"' in shown
    printed(installed, "plots", "report", str(ROOT / "results/batch-lr"), "--out", str(tmp_path))
    assert (tmp_path / "report.md").exists()
    for copy in (ROOT, installed):
        assert {printed(copy, room, "--version") for room in ROOMS} == {f"{VERSION}\n"}
