"""Servers in a report: known counts and paces in; staleness, slowest and mean worker out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.record import CHECKS
from plots.analyse.points import PointRow
from plots.analyse.runs import load
from plots.analyse.study import Analysis, analyse
from plots.report.write import make
from tests.plots import logs

# by staleness, of two servers: 30 steps of two ranks, and 45 more for each of two epochs' 15
WAITED = [[180], [60]]
LATE = [[90, 60, 30], [30, 30]]
RIGHT = [[150, 170], [160, 180]]  # of each training's last epoch, by each rank alone


def run(folder: Path, cell: str, block: int, staleness: list[list[int]], mode: str) -> None:
    """A log of two ranks and two servers; two trainings of an epoch of 15 steps; two keys."""
    asked = {"epochs": 1, "trainings": 2, "mode": mode, "servers": 2}
    config = logs.config(cell, 2, 16, block, seed=block, dataset="digits", image_size=8, **asked)
    averaged = mode == "sync"
    names = [name for name in CHECKS if averaged or name not in ("parameters_equal", "parity")]
    host = logs.host(4)
    host["servers"] = host["ranks"][2:]
    host["ranks"] = host["ranks"][:2]
    end = {
        "checks": dict.fromkeys([*names, "trainings_equal", "updates_counted"], True),
        "exchange_bytes": [8, 8],
        "servers": [{"updates": sum(late), "staleness": late} for late in staleness],
    }
    path = folder / "runs" / f"{block}-{mode}.jsonl"
    logs.write(path, config, 0.1, provenance=host, end=end)
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
        run(there, "ps/mpi", block, WAITED, "sync")
        run(there, "ps/mpi@async", block, LATE, "async")
    return there


@pytest.fixture(scope="module")
def a(folder: Path) -> Analysis:
    return analyse(load(folder))


def of(a: Analysis, cell: str) -> PointRow:
    (found,) = [one for one in a.served if one.point.cell == cell]
    return found


def test_all_logs_are_believed(a: Analysis) -> None:
    assert [one.reason for one in a.loaded.unusable] == []
    assert len(a.served) == 2


def test_staleness_is_of_all_updates(a: Analysis) -> None:
    waited, late = of(a, "ps/mpi"), of(a, "ps/mpi@async")
    assert (waited.servers, waited.staleness, waited.most_stale) == (2, (480,), 0)
    assert waited.mean_staleness == 0
    assert (late.updates, late.staleness) == (480, (240, 180, 60))
    assert late.mean_staleness == pytest.approx((180 + 2 * 60) / 480)


def test_a_worker_has_a_pace_and_an_accuracy_of_its_own(a: Analysis) -> None:
    late = of(a, "ps/mpi@async")
    assert late.slowest.value == pytest.approx(160)
    assert late.mean.value == pytest.approx((160 + 161.6) / 2)
    assert late.least is not None
    assert late.right is not None
    assert late.least.value == pytest.approx((150 + 160) / 2 / 200)
    assert late.right.value == pytest.approx((150 + 170 + 160 + 180) / 4 / 200)
    assert of(a, "ps/mpi").right is None  # all ranks have the same parameters


def test_a_log_that_lacks_what_each_rank_has_right_is_not_believed(tmp_path: Path) -> None:
    run(tmp_path, "ps/mpi", 0, WAITED, "sync")
    run(tmp_path, "ps/mpi@async", 0, LATE, "async")
    path = tmp_path / "runs/0-async.jsonl"
    logs.edit(path, ', "own_correct": [150, 170]', "")
    (one,) = load(tmp_path).unusable
    assert "lacks what each rank has right" in one.reason


def test_the_page_and_the_summary_tell_it(folder: Path) -> None:
    make(folder, folder)
    page = (folder / "report.md").read_text()
    assert "## Servers" in page
    assert "| ps/mpi@async |" in page.partition("## Servers")[2]
    served = json.loads((folder / "summary.json").read_text())["served"]
    assert [one["staleness"] for one in served] == [[480], [240, 180, 60]]
