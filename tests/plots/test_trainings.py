"""Trainings in a report: known epochs in; shares, medians and Olympic means out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench.record import CHECKS
from bench.study.frames import load
from plots.analyse.study import Analysis, analyse
from plots.analyse.trainings import dawnbench
from plots.imports import text
from plots.report import figures
from plots.report.write import make
from tests.plots import logs

HELD_OUT = 200
# of each training: (seconds, right) of its epochs
FAST = [[(2.0, 150), (2.0, 181)], [(2.0, 120), (2.0, 170), (2.5, 184)]]
SLOW = [[(4.0, 150), (4.0, 181)], [(4.0, 120), (4.0, 170), (5.0, 179)]]


def run(folder: Path, cell: str, launch: int, trainings: list[list[tuple[float, int]]]) -> None:
    """Write a log of two ranks whose trainings had three epochs at most to get 180 of 200 right."""
    asked = {"epochs": 3, "target": 0.9, "trainings": len(trainings), "image_size": 8}
    config = logs.config(cell, 2, 16, launch, seed=launch, dataset="digits", **asked)
    path = folder / "runs" / f"{launch}-{cell.replace('/', '-')}.jsonl"
    checks = {"checks": dict.fromkeys((*CHECKS, "trainings_equal"), True)}
    logs.write(path, config, 0.1, end=checks)
    common = {"steps": 4, "loss": 0.5, "parameters_equal": True, "held_out": HELD_OUT}
    found = [
        {**common, "training": index, "index": epoch, "seconds": seconds, "correct": correct}
        for index, epochs in enumerate(trainings)
        for epoch, (seconds, correct) in enumerate(epochs)
    ]
    logs.add(path, "epoch", found, {"steps_per_epoch": 4, "held_out": HELD_OUT})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("study")
    for launch in (0, 1):
        run(there, "ddp/mpi", launch, FAST)
        run(there, "horovod/mpi", launch, SLOW)
    return there


@pytest.fixture(scope="module")
def a(folder: Path) -> Analysis:
    return analyse(load(folder))


def test_one_that_failed_is_the_slowest_of_the_olympic_mean(tmp_path: Path) -> None:
    never = [(9.0, 100)] * 3
    run(tmp_path, "ddp/mpi", 0, [*FAST, never])
    run(tmp_path, "ddp/mpi", 1, [*FAST, FAST[0]])
    (trained,) = analyse(load(tmp_path)).trained
    assert (trained.reached, len(trained.trainings)) == (5, 6)
    assert trained.olympic == (4.0 + 4.0 + 6.5 + 6.5) / 4


def test_a_training_of_the_same_seed_counts_once(tmp_path: Path) -> None:
    run(tmp_path, "ddp/mpi", 0, FAST)
    other = tmp_path / "runs" / "again.jsonl"
    run(tmp_path / "made", "ddp/mpi", 0, FAST)
    next((tmp_path / "made" / "runs").iterdir()).rename(other)
    loaded = load(tmp_path)
    assert len(loaded.runs) == 2
    (trained,) = analyse(loaded).trained
    assert len(trained.trainings) == 2


def test_dawnbench_reads_back_what_was_written(a: Analysis) -> None:
    training = a.trained[0].trainings[1]
    table, _, _ = text.read(text.FORMATS["dawnbench"], "", dawnbench(training).encode())
    shares = table[table["quantity"] == "validation_accuracy"]["value"].tolist()
    seconds = table[table["quantity"] == "run_seconds"]["value"].tolist()
    assert shares == pytest.approx([0.6, 0.85, 0.92])
    assert seconds == pytest.approx([2.0, 4.0, 6.5])


def test_the_report_keeps_every_epoch(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path)
    assert "## Training to a target" in (tmp_path / "report.md").read_text()
    epochs = pd.read_csv(tmp_path / "trainings.csv")
    assert len(epochs) == 2 * (5 + 5)
    ours = epochs[(epochs["cell"] == "ddp/mpi") & (epochs["training"] == 1)]
    assert ours["seconds"].tolist()[:3] == [2.0, 4.0, 6.5]
    told = json.loads((tmp_path / "summary.json").read_text())["trained"]
    assert [row["seconds_olympic_mean"] for row in told] == [5.25, None]
    assert len(list((tmp_path / "dawnbench").glob("*.tsv"))) == 2


def test_the_figure_draws_every_training_and_the_target(a: Analysis) -> None:
    drawn = figures.draw(a)
    *of_accuracy, done, _ = drawn["accuracy"].axes
    for ax, longest in zip(of_accuracy, (3, 13.0), strict=True):
        data: list[Any] = [line.get_data() for line in ax.lines]
        lines = [[[float(v) for v in along] for along in both] for both in data]
        assert [90.0, 90.0] in [y for _, y in lines]  # the target
        trainings = [(x, y) for x, y in lines if y != [90.0, 90.0]]
        assert len(trainings) == 8
        assert max(x[-1] for x, _ in trainings) == longest
        assert ([1.0, 2.0] if longest == 3 else [2.0, 4.0], [75.0, 90.5]) in trainings
    steps: list[Any] = [line.get_data() for line in done.lines]
    assert [list(y) for _, y in steps] == [[0.0, 25.0, 50.0, 75.0, 100.0], [0.0, 25.0, 50.0]]
    assert [list(x) for x, _ in steps] == [[0.0, 4.0, 4.0, 6.5, 6.5], [0.0, 8.0, 8.0]]
