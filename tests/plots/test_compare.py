"""Studies side by side: known changes are found, blocks pooled only where they may be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plots.__main__ import main
from plots.analyse import across
from plots.analyse.runs import load
from plots.analyse.study import analyse
from tests.plots import logs

ROOT = Path(__file__).parents[2]
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
        assert isinstance(change, across.Change)
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
    assert {row.first.transport for row in pooled} == {"mpi"}
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


def test_other_work_is_neither_pooled_nor_a_change(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (studies[1] / "runs").iterdir():
        logs.edit(path, '"model": "resnet50"', '"model": "resnet18"')
    assert main(["compare", *map(str, studies)]) == 0
    said = capsys.readouterr().out
    assert "not pooled: other model" in said
    assert "No point is in both." in said
    assert "other work: model: resnet18, resnet50" in said
    assert main(["compare", *map(str, studies), "--fail-below", "0.5"]) == 2
    assert "can be compared with one of the last" in capsys.readouterr().err


def test_a_point_that_vanished_is_named(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (studies[1] / "runs").glob("*single*"):
        path.unlink()
    assert main(["compare", *map(str, studies), "--fail-below", "0.5"]) == 0
    error = capsys.readouterr().err
    assert "not judged: single, 1 rank, 16 images per rank: not in the later study" in error


def test_the_same_runs_do_not_count_twice(capsys: pytest.CaptureFixture[str]) -> None:
    local = str(ROOT / "results" / "local")
    assert main(["compare", local, local]) == 2
    assert "hold the same runs" in capsys.readouterr().err
    assert main(["compare", local, str(ROOT / "results" / "aa")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\| measured \| 20\d\d-\d\d-\d\d", said)


def test_two_precisions_and_two_settings_of_one_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known ratios: twice as fast in bf16, 1.25 times as fast with matched settings."""
    for block in range(6):
        for i, (precision, settings, seconds) in enumerate((
            ("float32", "shipped", 0.2),
            ("bf16", "shipped", 0.1),
            ("float32", "matched", 0.16),
            ("bf16", "matched", 0.08),
        )):  # fmt: skip
            run = logs.config("ddp/mpi", 2, 16, block, precision=precision, settings=settings)
            logs.write(tmp_path / "runs" / f"{block}-{i}.jsonl", run, seconds)
    of = "ddp/mpi,precision="
    assert main(["compare", str(tmp_path), "--cells", f"{of}float32", f"{of}bf16"]) == 0
    rows = [x for x in capsys.readouterr().out.splitlines() if "precision=bf16 over float32" in x]
    assert len(rows) == 2
    assert all("| 2.000 [2.000, 2.000] |" in row for row in rows)
    of = "ddp/mpi,settings="
    assert main(["compare", str(tmp_path), "--cells", f"{of}shipped", f"{of}matched"]) == 0
    rows = [x for x in capsys.readouterr().out.splitlines() if "matched over shipped" in x]
    assert len(rows) == 2
    assert all("| 1.250 [1.250, 1.250] |" in row for row in rows)
    for words, said in (
        (("ddp/mpi", "ddp/mpi"), "name two that differ"),
        (
            ("ddp/mpi", f"{of}tuned"),
            "of ddp/mpi it has precision=bf16, precision=float32, settings=",
        ),
        (("ddp/mpi", "ddp/mpi,bf16"), "'bf16' is no FIELD=VALUE"),
    ):
        assert main(["compare", str(tmp_path), "--cells", *words]) == 2
        assert said in capsys.readouterr().err
