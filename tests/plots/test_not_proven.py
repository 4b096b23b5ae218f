"""Runs whose parity is not proven, in the answer of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.record import CHECKS
from plots.report.findings import checks, standing
from plots.report.write import analysed
from tests.plots import logs


def test_a_report_never_calls_parity_proven_where_it_is_not(tmp_path: Path) -> None:
    step = {"step": 2, "elements": 8, "relative_difference": 1.0, "allowed": 1e-3, "holds": None}
    unproven: dict[str, Any] = {"checks": {**dict.fromkeys(CHECKS, True), "parity": None}}
    unproven["parity"] = [{**step, "not_proven": ["fc.weight", "fc.bias"]}]
    for launch in range(2):
        for cell, end in (("ddp/mpi", None), ("horovod/mpi", unproven)):
            name = tmp_path / f"{cell.partition('/')[0]}-{launch}.jsonl"
            logs.write(name, logs.config(cell, 2, launch=launch), 0.1, end=end)
    checked = list(checks(analysed(tmp_path)))
    (parity,) = (check for check in checked if check.name == "parity not proven")
    assert parity.holds is False
    assert "2 of 4 runs (horovod/mpi)" in parity.text
    assert "2 tensors" in parity.text
    assert "parity not proven" in standing(checked)
