"""Ranks by themselves in a report: known paces in; slowest and mean rank out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.record import CHECKS
from plots.analyse.points import PointRow
from plots.analyse.runs import load
from plots.analyse.study import Analysis, analyse
from tests.plots import logs

RIGHT = [[150, 170], [160, 180]]  # of each training's last epoch, by each rank alone


def run(folder: Path, cell: str, block: int, mode: str) -> None:
    """Write a log of two ranks; two trainings of an epoch of 15 steps; two keys."""
    asked = {"epochs": 1, "trainings": 2, "mode": mode}
    config = logs.config(cell, 2, 16, block, seed=block, dataset="digits", image_size=8, **asked)
    averaged = mode == "sync"
    names = [name for name in CHECKS if averaged or name not in ("parameters_equal", "parity")]
    end = {
        "checks": dict.fromkeys([*names, "trainings_equal"], True),
        "exchange_bytes": [8, 8],
    }
    path = folder / "runs" / f"{block}-{mode}.jsonl"
    logs.write(path, config, 0.1, end=end)
    common = {"index": 0, "steps": 15, "loss": 0.5, "parameters_equal": True, "seconds": 1.0}
    own = [{} if averaged else {"own_correct": right} for right in RIGHT]
    epochs: list[dict[str, Any]] = [
        {**common, "training": i, "correct": 190, "held_out": 200, **more}
        for i, more in enumerate(own)
    ]
    logs.add(path, "epoch", epochs, {"steps_per_epoch": 15, "held_out": 200})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("study")
    for block in (0, 1):
        run(there, "ps/mpi", block, "sync")
        run(there, "ps/mpi@async", block, "async")
    return there


@pytest.fixture(scope="module")
def a(folder: Path) -> Analysis:
    return analyse(load(folder))


def of(a: Analysis, cell: str) -> PointRow:
    (found,) = [one for one in a.served if one.point.cell == cell]
    return found


def test_a_worker_has_a_pace_and_an_accuracy_of_its_own(a: Analysis) -> None:
    assert a.loaded.unusable == ()
    late = of(a, "ps/mpi@async")
    assert late.slowest.value == pytest.approx(160)
    assert late.mean.value == pytest.approx((160 + 161.6) / 2)
    assert late.least is not None
    assert late.right is not None
    assert late.least.value == pytest.approx((150 + 160) / 2 / 200)
    assert late.right.value == pytest.approx((150 + 170 + 160 + 180) / 4 / 200)
    assert of(a, "ps/mpi").right is None  # all ranks have the same parameters


def test_a_log_that_lacks_what_each_rank_has_right_is_not_believed(tmp_path: Path) -> None:
    run(tmp_path, "ps/mpi", 0, "sync")
    run(tmp_path, "ps/mpi@async", 0, "async")
    path = tmp_path / "runs/0-async.jsonl"
    logs.edit(path, ', "own_correct": [150, 170]', "")
    (one,) = load(tmp_path).unusable
    assert "lacks what each rank has right" in one.reason
