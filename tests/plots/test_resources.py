"""Memory and operations of runs whose true values are known, and the report on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plots.__main__ import main
from tests.plots import logs

pytestmark = pytest.mark.usefixtures("undrawn")


def test_memory_and_operations_stand_beside_throughput(tmp_path: Path) -> None:
    end = {
        "peak_memory_bytes": [500_000_000, 700_000_000],
        "peak_device_memory_bytes": [None, 30_000_000],
        "flops_per_image": 1e9,
    }
    for launch in range(6):
        for cell in ("ddp/mpi", "horovod/mpi"):
            path = tmp_path / "runs" / f"{launch}-{cell.replace('/', '-')}.jsonl"
            logs.write(path, logs.config(cell, 2, launch=launch, peak_tflops=0.5), 0.1, end=end)
    logs.study_toml(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    points = json.loads((tmp_path / "summary.json").read_text())["throughput"]
    ddp = next(point for point in points if point["cell"] == "ddp/mpi")
    assert ddp["rank_memory_bytes"]["value"] == pytest.approx(700e6)
    assert ddp["device_memory_bytes"]["value"] == pytest.approx(30e6)
    # 32 images in 0.1 s, by two ranks
    assert ddp["flops_per_s_and_rank"]["value"] == pytest.approx(160e9)
    assert ddp["flop_utilisation"]["value"] == pytest.approx(0.32)
