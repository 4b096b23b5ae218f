"""Ranks by themselves in a report: their log must say what each of them has right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.record import CHECKS
from bench.study.frames import load
from tests.plots import logs


def test_a_log_that_lacks_what_each_rank_has_right_is_not_believed(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"epochs": 1, "trainings": 2, "mode": "async", "dataset": "digits"}
    config = logs.config("ps/mpi@async", 2, image_size=8, **asked)
    names = [name for name in CHECKS if name not in ("parameters_equal", "parity")]
    checks = dict.fromkeys([*names, "trainings_equal"], True)
    common = {"index": 0, "steps": 15, "loss": 0.5, "parameters_equal": True, "seconds": 1.0}
    right = {"correct": 190, "held_out": 200, "own_correct": [150, 170]}
    epochs = [{**common, **right, "training": training} for training in (0, 1)]
    path = logs.write(
        tmp_path / "a.jsonl", config, 0.1, end={"checks": checks, "exchange_bytes": [8, 8]}
    )
    logs.add(path, "epoch", epochs, {"steps_per_epoch": 15, "held_out": 200})
    assert load(tmp_path).unusable == ()
    logs.edit(path, ', "own_correct": [150, 170]', "")
    (one,) = load(tmp_path).unusable
    assert "lacks what each rank has right" in one.reason
