"""The commands as a user meets them: the answer, nothing left over, one line of refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plots.__main__ import main
from tests.plots import logs

pytestmark = pytest.mark.usefixtures("undrawn")

ROOT = Path(__file__).parents[2]


def test_the_answer_is_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = logs.study(tmp_path / "test", launches=6)
    logs.study_toml(folder, launches=6)
    with (folder / "study.toml").open("a") as file:
        file.write('primary = { curve = "weak", world_size = 1, batch_per_rank = 16 }\n')
    assert main(["report", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    compared = json.loads((folder / "summary.json").read_text())["comparisons"]
    (primary,) = [c for c in compared if c["primary"]]
    low, high = (100 * (1 / end - 1) for end in primary["interval"][::-1])
    assert lines[0].startswith("DDP is ")
    assert "1 rank of 16 images over MPI on this machine, where nothing is exchanged" in lines[0]
    assert f"({low:.1f} to {high:.1f} %, 6 launches)" in lines[0]
    assert lines[1].startswith("DDP faster at 3 of 3 points (by ")
    assert "equal work" in lines[2]
    assert lines[3] == (folder / "report.html").as_uri()


WITHOUT = """
import importlib.abc, runpy, sys
package = sys.argv[1]
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
sys.modules.pop(package, None)
sys.argv = ['plots', *sys.argv[2:]]
runpy.run_module('plots', run_name='__main__', alter_sys=True)
"""


def without(package: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", WITHOUT, package, *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("package", ["pydantic", "matplotlib"])
def test_a_package_that_is_not_there_is_one_line(tmp_path: Path, package: str) -> None:
    logs.write(tmp_path / "runs" / "a.jsonl", logs.config("single"), 0.1)
    done = without(package, "report", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {package} is not ")
    assert done.stderr.count("\n") == 1
    assert "`make setup`" in done.stderr


def test_a_report_is_made_where_torch_is_not_installed(tmp_path: Path) -> None:
    logs.write(tmp_path / "runs" / "a.jsonl", logs.config("single"), 0.1)
    done = without("torch", "report", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
