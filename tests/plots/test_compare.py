"""Studies side by side: known changes are found, blocks pooled only where they may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from plots.__main__ import main
from plots.analyse import across
from plots.analyse.runs import load
from plots.analyse.study import analyse
from tests.plots import logs

SLOW = {"single": 1.0, "ddp/mpi": 1.2, "horovod/mpi": 1.2}


@pytest.fixture
def studies(tmp_path: Path) -> tuple[Path, Path]:
    found = []
    for name, seed in (("before", 1), ("after", 2)):
        folder = logs.study(tmp_path / name, seed=seed, sd=0.002)
        logs.study_toml(folder)
        found.append(folder)
    return found[0], found[1]


def test_a_known_slowdown_of_one_cell_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for name, horovod in (("before", 1.0), ("after", 1.8)):
        cells = {"single": 1.0, "ddp/mpi": 1.0, "horovod/mpi": horovod}
        folder = logs.study(tmp_path / name, cells=cells, sd=0.002, seed=3)
        logs.study_toml(folder)
        folders.append(str(folder))
    assert main(["compare", *folders, "--fail-below", "0.95"]) == 1
    out, error = capsys.readouterr()
    assert error.count("slower: horovod/mpi") == 3
    assert "ddp/mpi" not in error
    assert "## Images/s of" in out
    assert main(["compare", *folders, "--fail-below", "0.3"]) == 0
    assert main(["compare", *reversed(folders), "--fail-below", "1"]) == 0


def test_changes_are_of_each_point(studies: tuple[Path, Path]) -> None:
    before, after = (analyse(load(folder)) for folder in studies)
    found = list(across.changes(before, after))
    assert len(found) == len(before.table.blocks)
    for change in found:
        assert change.ratio.value == pytest.approx(change.after.value / change.before.value)
        assert change.ratio.low < change.ratio.value < change.ratio.high  # type: ignore[operator]


def test_blocks_are_pooled_on_one_machine_alone(studies: tuple[Path, Path]) -> None:
    analyses = [analyse(load(folder)) for folder in studies]
    pooled = list(across.both(analyses))
    assert all(row.pooled is not None and row.pooled.n == 12 for row in pooled)
    for path in (studies[1] / "runs").iterdir():
        logs.edit(path, "Test CPU @ 2 GHz", "Another CPU")
    apart = list(across.both([analyses[0], analyse(load(studies[1]))]))
    assert {row.not_pooled for row in apart} == {"other cpu"}
    names = dict(across.differences([analyses[0], analyse(load(studies[1]))]))
    assert names["cpu"] == ["Test CPU @ 2 GHz", "Another CPU"]


def test_any_two_cells_of_one_study(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(studies[0])
    assert main(["compare", folder, "--cells", "horovod/mpi", "ddp/mpi"]) == 0
    said = capsys.readouterr().out
    assert "ddp/mpi over horovod/mpi" in said
    assert "A description" in said
    assert main(["compare", folder, "--cells", "single", "nobody/mpi"]) == 2
    assert "has no cell 'nobody/mpi'; it has " in capsys.readouterr().err


def test_one_study_alone_is_refused(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(studies[0])]) == 2
    assert "name two, or --cells" in capsys.readouterr().err
