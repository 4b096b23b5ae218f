"""The files for other suites, with the real suites: they report the figures of our logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import fom
from bench.config import make_config
from tests.slurm.centre_tools import FRAMEWORKS, figures, logs, reframe

CASES = {(framework, ranks) for framework in FRAMEWORKS for ranks in (1, 2)}


@pytest.mark.ranks
def test_reframe_reports_our_figures_and_holds_them_against_a_reference(tmp_path: Path) -> None:
    references = tmp_path / "references.json"
    references.write_text(json.dumps({"ddp": {"1_node": 1e-3}, "horovod": {"1_node": 1e9}}))
    cases = reframe(tmp_path, "machine", "scale=1_(rank|node)", expected=str(references))
    results = {name: case["result"] for name, case in cases.items()}
    assert results == {
        "ddp 1_rank": "pass",
        "ddp 1_node": "pass",
        "horovod 1_rank": "pass",
        "horovod 1_node": "fail",  # nobody reaches 1e9 images/s
    }
    assert cases["horovod 1_node"]["fail_phase"] == "performance"
    runs = logs(tmp_path)
    assert {*runs} == CASES
    for case in cases.values():
        assert {*case["tags"]} == {"production", "maintenance", case["scale"]}
        run = runs[case["backend"], case["num_tasks"]]
        shown = figures(case)
        assert shown["total"] == pytest.approx(run.images_per_s)
        assert shown["per_device"] == pytest.approx(run.images_per_s / case["num_tasks"])
        assert shown["plus_minus"] > 0


def test_reframe_fails_two_worlds_of_one_rank(tmp_path: Path) -> None:
    """What a launcher of another MPI starts: each process prints good figures of its own."""
    config = make_config({"backend": "ddp", "transport": "mpi", "batch_per_rank": 8})
    text = fom.text(fom.merits(config, [400.0, 420.0, 410.0], {}, ok=True))
    alone = tmp_path / "alone"
    alone.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    alone.chmod(0o755)
    one_rank, one_node = (
        reframe(tmp_path, "machine", f"backend=ddp.*scale=1_{scale}", executable=str(alone))
        for scale in ("rank", "node")
    )
    assert [case["result"] for case in one_rank.values()] == ["pass"]
    assert [case["fail_phase"] for case in one_node.values()] == ["sanity"]
