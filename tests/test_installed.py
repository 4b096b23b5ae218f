"""An installed copy: it holds every file of the rooms, and renders a shipped study anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("bench", "slurm", "plots")
BUILD = "from setuptools import build_meta; build_meta.build_wheel('.')"


def files(folder: Path) -> set[str]:
    paths = {p.relative_to(folder) for room in ROOMS for p in (folder / room).rglob("*")}
    return {str(p) for p in paths if (folder / p).is_file() and "__pycache__" not in p.parts}


def test_it_is_whole_and_renders_a_shipped_study(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-W", "ignore", "-c", BUILD]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(next(source.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    pages = {f"bench/{page}.md" for page in ("EXERCISE", "LEAVING_HOROVOD", "WHY_SLOW")}
    assert files(ROOT) - files(site) <= pages | {f"{room}/README.md" for room in ROOMS}
    render = [sys.executable, "-P", "-m", "slurm", "render", "local"]
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(render, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert "results/mine/local" in done.stdout
