"""Cells that take no mean stand in a table of their own, and change nothing else of a report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError
from bench.record import CHECKS
from bench.study.files import read_study
from plots.__main__ import main
from plots.analyse.runs import load
from plots.report.compare import cells
from plots.report.settled import settled
from tests.plots import logs
from tests.slurm.studies import SMALL

BLOCKS = 6
# seconds of a step: 1 / 0.8 and 1 / 1.25 of those of the framework's own cell, in every launch
OTHERS = {"powersgd/mpi": ("ddp/mpi", 1.25), "adasum/mpi": ("horovod/mpi", 0.8)}
TITLE = "## Other optimisation\n"


def add_others(folder: Path) -> None:
    """Runs at two ranks beside each of the study's; PowerSGD's sent a tenth of the gradients."""
    frame = load(folder).runs
    two_ranks = frame[(frame["world_size"] == 2) & (frame["samples_per_rank"] == 16)]
    measured: Any = two_ranks.to_dict("records")
    for name, (mean, slower) in OTHERS.items():
        for row in (row for row in measured if row["cell"] == mean):
            block, curve = row["block"], row["log"].split("-")[1]
            run = logs.config(name, 2, 16, block, curves=(curve,), seed=block)
            end: dict[str, Any] = {"checks": dict.fromkeys({*CHECKS} - {"parity"}, True)}
            end["exchange_bytes"] = [100] if name == "powersgd/mpi" else []
            end["parameters_sha256"] = logs.digest(name)  # such a training ends elsewhere
            path = folder / "runs" / f"{block}-{curve}-{name.replace('/', '-')}.jsonl"
            logs.write(path, run, row["step_seconds_mean"] * slower, end=end)
            logs.edit(path, '"workload": {}', '"workload": {"gradient_bytes": 1000}')


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A reported study of two frameworks, and the same with cells of another optimisation."""
    plain, mixed = (tmp_path_factory.mktemp(name) for name in ("plain", "mixed"))
    logs.study(plain, blocks=BLOCKS, sd=0.002)
    logs.study_toml(plain, BLOCKS)
    shutil.copytree(plain, mixed, dirs_exist_ok=True)
    add_others(mixed)
    for folder in (plain, mixed):
        assert main(["report", str(folder)]) == 0
    return plain, mixed


def summary(folder: Path) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return whole


def test_the_table_has_speed_bytes_and_a_ratio_without_a_verdict(
    folders: tuple[Path, Path],
) -> None:
    rows = {row["cell"]: row for row in summary(folders[1])["other_optimisation"]}
    assert [*rows] == ["adasum/mpi", "powersgd/mpi"]
    for name, (mean, slower) in OTHERS.items():
        row = rows[name]
        assert (row["mean_cell"], row["why"]) == (mean, "")
        assert row["ratio"]["value"] == pytest.approx(1 / slower, rel=1e-6)
        assert row["ratio"]["n"] == row["images_per_s"]["n"] == BLOCKS
        assert row["gradient_bytes"] == 1000
    assert rows["powersgd/mpi"]["exchanged_bytes"] == 100
    assert rows["adasum/mpi"]["exchanged_bytes"] == 1000  # whole updates; Horovod joins them
    table = logs.page(folders[1]).partition(TITLE)[2].partition("\n## ")[0]
    assert "speed alone does not compare them" in table
    assert "time to a target" in table
    rows_of_page = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows_of_page) == 2 + len(OTHERS)
    for word in ("faster", "equal within", "settled"):
        assert not any(word in line for line in rows_of_page)


def test_nothing_else_of_the_summary_changes(folders: tuple[Path, Path]) -> None:
    """Verdicts, intervals, checks, gaps and the answer are those of the study without them."""
    plain, mixed = map(summary, folders)
    assert plain.pop("other_optimisation") == []
    assert len(mixed.pop("other_optimisation")) == len(OTHERS)
    assert len(plain["comparisons"]) == 3
    assert mixed == plain
    assert settled(folders[1]) == settled(folders[0])
    assert "Not settled: no launch" not in settled(folders[1])[1]


def test_only_their_table_names_them(folders: tuple[Path, Path]) -> None:
    page = logs.page(folders[1])
    before, _, rest = page.partition(TITLE)
    for text in (before, rest.partition("\n## ")[2], (folders[1] / "runs.csv").read_text()):
        assert "powersgd" not in text
        assert "adasum" not in text
    assert f"{4 * BLOCKS} of another optimisation" in page
    assert TITLE not in logs.page(folders[0])


def test_nobody_makes_a_comparison_of_them(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="speed alone does not compare it; see the table Other"):
        cells(folders[1], "ddp/mpi", "powersgd/mpi")
    named = SMALL.replace("blocks = ", 'reference = "ddp"\ncandidate = "adasum"\nblocks = ', 1)
    (tmp_path / "small.toml").write_text(named)
    with pytest.raises(UsageError, match="candidate: 'adasum' applies no mean of gradients, so no"):
        read_study(tmp_path / "small.toml")


def test_alone_they_are_no_study(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """And a cell without its framework's own has no ratio, and says why."""
    for log in (folders[1] / "runs").glob("*powersgd*"):
        (tmp_path / "runs").mkdir(exist_ok=True)
        shutil.copy(log, tmp_path / "runs")
    logs.study_toml(tmp_path, BLOCKS)
    assert main(["report", str(tmp_path)]) == 2
    for log in (folders[1] / "runs").glob("*horovod*"):
        shutil.copy(log, tmp_path / "runs")
    assert main(["report", str(tmp_path)]) == 0
    (row,) = summary(tmp_path)["other_optimisation"]
    assert (row["ratio"], row["why"]) == (None, "no usable run of ddp/mpi")
