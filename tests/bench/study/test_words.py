"""The interim verdict: one line and whether it settles a study, for a loop that adds launches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.study.words import interim
from tests.plots import logs

EQUAL = {"ddp/mpi": 1.0, "horovod/mpi": 1.001}


@pytest.mark.parametrize(
    ("cells", "sd", "settled", "said"),
    [
        ({"ddp/mpi": 1.0, "horovod/mpi": 0.9}, 0.002, True, "Horovod faster: 1"),
        (EQUAL, 0.001, True, "Equal within 2 %: 0.2 % ["),
        (EQUAL, 0.05, False, "Not settled: "),
        ({"ddp/mpi": 1.0}, 0.001, False, "Not settled: no launch holds both sides"),
    ],
)
def test_the_line_says_whether_more_may_help(
    tmp_path: Path, cells: dict[str, float], sd: float, settled: bool, said: str
) -> None:
    folder = logs.study(tmp_path, launches=6, cells=cells, sd=sd)
    logs.study_toml(folder, launches=6)
    line, is_settled = interim(folder)
    assert line.startswith(said)
    assert is_settled is settled


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run logs"):
        interim(tmp_path)


def test_it_imports_neither_torch_nor_figures(tmp_path: Path) -> None:
    logs.study(tmp_path, launches=2)
    code = (
        "import sys; from bench.study.words import interim; from pathlib import Path\n"
        "interim(Path(sys.argv[1])); print({'torch', 'matplotlib', 'plots'} & {*sys.modules})"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
