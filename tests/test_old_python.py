"""A Python that is too old is told so in one line, by every way in, before it meets new syntax."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEAST = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"][2:]
WAYS_IN = {
    "bench/tools/setup/install.py": ["bench/tools/setup/install.py", "--check"],
    "bench/__init__.py": ["-m", "bench", "--help"],
    "slurm/__init__.py": ["-m", "slurm", "--help"],
    "plots/__init__.py": ["-m", "plots", "--help"],
    "hvd_ddp.py": ["-m", "hvd_ddp", "bench", "--help"],
}
# what such a Python is, as far as a new one can pretend
PRETEND = """
import runpy, sys
sys.version_info, sys.version = (3, 10, 2, "final", 0), "3.10.2"
del sys.stdlib_module_names
sys.argv = [word for word in sys.argv[1:] if word != "-m"]
start = runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module
start(sys.argv[0], run_name="__main__")
"""


def old_pythons() -> dict[str, list[str]]:
    """Version -> command: those of this machine that start, and this Python as if it were one."""
    found = {"3.10.2": [sys.executable, "-c", PRETEND]}
    asked = "import platform; print(platform.python_version())"
    # on PATH and in pyenv's folders; pyenv's own commands say no where no version is chosen
    for folder in ("", *map(str, (Path.home() / ".pyenv/versions").glob("*/bin"))):
        for minor in range(6, 11):
            if path := shutil.which(f"python3.{minor}", path=folder or None):
                told = subprocess.run([path, "-c", asked], capture_output=True, text=True)
                found |= {told.stdout.strip(): [path]} if not told.returncode else {}
    return found


@pytest.mark.parametrize("first_read", WAYS_IN)
def test_an_old_python_is_refused_in_one_line(first_read: str) -> None:
    for version, command in old_pythons().items():
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        start = [*command, *WAYS_IN[first_read]]
        done = subprocess.run(start, cwd=ROOT, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: Python {version} (/")
        assert f"too old: {LEAST} or later is needed" in line
        assert f"`make setup PYTHON=python{LEAST}`" in line


@pytest.mark.parametrize("first_read", WAYS_IN)
def test_what_an_old_python_reads_first_parses_there(first_read: str) -> None:
    tree = ast.parse((ROOT / first_read).read_text(), feature_version=(3, 6))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "__future__" not in imported, "its annotations are of 3.7"
