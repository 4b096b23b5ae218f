"""A proposal page: one table per arm, and a criterion that the whole interval must meet."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from bench.study.stats import Estimate
from plots.__main__ import main
from plots.report.proposal import met
from tests.plots import logs


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weak efficiency at two ranks: 63.5 % under DDP, 57.7 % under Horovod; own one: 66.7 %."""
    return logs.study(tmp_path_factory.mktemp("study"), blocks=8, sd=0.005)


def proposal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["proposal", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("low", "high", "n", "word"),
    [
        (0.75, 0.80, 6, "met"),
        (0.74, 0.76, 6, "open"),
        (0.70, 0.75, 6, "open"),
        (0.70, 0.74, 6, "not met"),
        (0.80, 0.90, 5, "open"),
        (None, None, 6, "open"),
    ],
)
def test_the_whole_interval_must_meet_the_criterion(
    low: float | None, high: float | None, n: int, word: str
) -> None:
    assert met(Estimate(value=0.8, low=low, high=high, n=n), 0.75) == word


def test_each_arm_has_a_table_with_its_baseline(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = proposal(capsys, str(study), "--criterion", "60", "--epoch-images", "48000")
    weak = {
        "DDP": logs.rows(page, "PyTorch DDP over MPI, weak scaling, 16 images per rank"),
        "Horovod": logs.rows(page, "Horovod over MPI, weak scaling, 16 images per rank"),
    }
    assert [[r["ranks"] for r in rows] for rows in weak.values()] == [["1", "2"]] * 2
    assert [[r["criterion"] for r in rows] for rows in weak.values()] == [
        ["met", "met"],
        ["met", "not met"],
    ]
    assert page.count("Baseline: single, 1 rank, 16 images per rank, at ") == 2
    assert page.count("Baseline: single, 1 rank, 32 images per rank, at ") == 2  # strong
    assert "Test CPU @ 2 GHz, 2 cores per node, 1 node: resnet50" in page
    page = proposal(capsys, str(study), "--baseline", "own")
    own = logs.rows(page, "Horovod over MPI, weak scaling, 16 images per rank")
    assert [row["ranks"] for row in own] == ["2"]
    assert own[0]["efficiency [95 %]"].startswith("66.")
    assert "criterion" not in own[0]


def test_csv_has_unrounded_numbers_and_the_time_of_an_epoch(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.csv"
    words = ["--criterion", "60", "--format", "csv", "--epoch-images", "48000", "-o", str(path)]
    assert proposal(capsys, str(study), *words) == f"{path}\n"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 8, "two cells, two curves, one rank and two"
    for row in rows:
        rate, low, high = (float(row[f"images_per_s_{e}"]) for e in ("value", "low95", "high95"))
        ends = [float(row[f"epoch_seconds_{e}"]) for e in ("value", "low95", "high95")]
        assert ends == pytest.approx([48000 / rate, 48000 / high, 48000 / low])
        speedup = int(row["world_size"]) * float(row["efficiency_value"])
        assert float(row["speedup_value"]) == pytest.approx(speedup)
        assert (row["criterion"], row["efficiency_n"], row["emulated"]) == ("0.6", "8", "False")


def test_latex_has_a_table_for_each_arm(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = proposal(capsys, str(study), "--criterion", "60", "--format", "latex")
    assert text.count("\\begin{table}") == text.count("\\end{table}") == 4
    captions = [line for line in text.splitlines() if line.startswith("\\caption{")]
    assert not any("DDP" in line and "Horovod over" in line for line in captions)
    rows = [line for line in text.splitlines() if line.endswith("& met & 8 \\\\")]
    assert rows
    assert all(row.count(" & ") == 6 for row in rows)
    assert "criterion" not in proposal(capsys, str(study), "--format", "latex")


def test_nodes_are_those_that_a_point_ran_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = np.random.default_rng(0)
    for block in range(6):
        job = logs.Job(str(block), block, {"n1": 1.0, "n2": 1.0})
        logs.in_job(tmp_path, job, {"single": (1, 1.0), "ddp/mpi": (2, 1.1)}, noise, 0.01)
    page = proposal(capsys, str(tmp_path))
    rows = logs.rows(page, "PyTorch DDP over MPI, weak scaling, 16 images per rank")
    assert [(row["nodes"], row["ranks"]) for row in rows] == [("2", "2")]


@pytest.mark.parametrize(
    ("words", "text"),
    [(["--criterion", "0.75"], "--criterion '0.75'"), (["--baseline", "own"], "baseline=own")],
)
def test_what_cannot_be_is_one_line(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.write(tmp_path / "runs" / "one.jsonl", logs.config("single"), 0.1)
    assert main(["proposal", str(tmp_path), *words]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
