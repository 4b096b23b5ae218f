"""One version for the three commands, told by a checkout that is not installed, from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bench

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("room", ["bench", "slurm", "plots"])
def test_every_command_tells_it(room: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", room, "--version"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


def test_without_a_checkout_it_is_that_of_the_installed_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "horovod_vs_ddp-9.8.7.dist-info").mkdir()
    (tmp_path / "horovod_vs_ddp-9.8.7.dist-info" / "METADATA").write_text(
        "Name: horovod-vs-ddp\nVersion: 9.8.7\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "bench" / "__init__.py"))
    assert bench.version() == "9.8.7"
