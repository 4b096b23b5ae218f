"""The look at a study: one line and an exit code, for a loop that adds launches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plots.report.settled import main
from tests.plots import logs

EQUAL = {"ddp/mpi": 1.0, "horovod/mpi": 1.001}


@pytest.mark.parametrize(
    ("blocks", "cells", "sd", "code", "said"),
    [
        (6, {"ddp/mpi": 1.0, "horovod/mpi": 0.9}, 0.002, 0, "Horovod faster: 1"),
        (6, EQUAL, 0.001, 0, "Equal within 2 %: 0.2 % ["),
        (6, EQUAL, 0.05, 1, "Not settled: "),
        (6, {"ddp/mpi": 1.0}, 0.001, 1, "Not settled: no launch holds both sides"),
    ],
)
def test_the_code_says_whether_more_may_help(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    blocks: int,
    cells: dict[str, float],
    sd: float,
    code: int,
    said: str,
) -> None:
    folder = logs.study(tmp_path, blocks=blocks, cells=cells, sd=sd)
    logs.study_toml(folder, blocks=6)
    assert main([str(folder)]) == code
    out = capsys.readouterr().out
    assert out.startswith(said)
    assert out.count("\n") == 1


def test_bad_input_is_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert main([str(tmp_path)]) == 2
    assert "holds no run logs" in capsys.readouterr().err


def test_it_imports_neither_torch_nor_figures(tmp_path: Path) -> None:
    logs.study(tmp_path, blocks=2)
    code = (
        "import sys; from plots.report.settled import settled; from pathlib import Path\n"
        "settled(Path(sys.argv[1])); print({'torch', 'matplotlib'} & {*sys.modules})"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
