"""Two nodes of the cluster under ReFrame's and JUBE's own jobs: they report our figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import Run
from tests.slurm.centre_tools import (
    FRAMEWORKS,
    figures,
    jube,
    jube_finish,
    jube_table,
    logs,
    reframe,
)

pytestmark = pytest.mark.cluster


def _on_two_nodes(folder: Path) -> dict[str, Run]:
    """Logs by framework, each of one rank on each of two nodes."""
    runs = {framework: run for (framework, _), run in logs(folder).items()}
    assert {*runs} == {*FRAMEWORKS}
    assert {len(run.hosts) for run in runs.values()} == {2}
    return runs


def test_reframe_on_two_nodes(tmp_path: Path) -> None:
    cases = reframe(tmp_path, "cluster", "scale=2_nodes")
    assert {name: case["result"] for name, case in cases.items()} == {
        "ddp 2_nodes": "pass",
        "horovod 2_nodes": "pass",
    }
    runs = _on_two_nodes(tmp_path)
    for case in cases.values():
        run = runs[case["backend"]]
        assert case["jobid"] == run.host["job"]["SLURM_JOB_ID"]
        assert figures(case)["total"] == pytest.approx(run.images_per_s)


def test_jube_by_sbatch(tmp_path: Path) -> None:
    jube(tmp_path, {"queue": "main", "nodes": 2, "taskspernode": 1}, "--tag", "slurm")
    jube_finish(tmp_path)
    runs, rows = _on_two_nodes(tmp_path), jube_table(tmp_path)
    assert sorted(row["framework"] for row in rows) == [*FRAMEWORKS]
    for row in rows:
        run = runs[row["framework"]]
        assert (row["nodes"], row["tasks"], row["error_code"]) == ("2", "2", "0")
        assert row["jobid"] == run.host["job"]["SLURM_JOB_ID"]
        assert float(row["images_per_s"]) == pytest.approx(run.images_per_s, rel=1e-3)
