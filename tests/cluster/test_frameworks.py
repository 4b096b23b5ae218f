"""Runs of the bench under srun on two nodes: all cells agree, and a killed rank ends the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import node, steps
from tests.cluster.steps import CELLS, ENDLESS, PLUG_IN, SHORT, Step, cell, finish, places

pytestmark = pytest.mark.cluster


def test_two_nodes_end_with_the_same_parameters(tmp_path: Path) -> None:
    """At two ranks all four cells agree bit for bit, as they do on one machine."""
    digests = set()
    for backend, transport in CELLS:
        srun = ["-N2", "-n2", "-w", "n1,n2", f"--mpi={PLUG_IN[transport]}"]
        result = finish(
            tmp_path / f"{backend}-{transport}.jsonl", srun, [*SHORT, *cell(backend, transport, 2)]
        )
        assert places(result) == [("n1", 0, 1), ("n2", 0, 1)]
        assert {rank["source"] for rank in result.host["ranks"]} == {"srun"}
        assert result.host["job"]["SLURM_STEP_NODELIST"] == "n[1-2]"
        digests.add(result.end["parameters_sha256"])
    assert len(digests) == 1
    left = {path.suffix or path.name for path in tmp_path.iterdir()}
    assert left == {".jsonl", ".out", "user_code"}, "nothing of the ranks' meeting"


def test_a_killed_rank(tmp_path: Path) -> None:
    words = [*ENDLESS, *cell("horovod", "mpi", 2)]
    step = Step(tmp_path / "run.jsonl", ["-N2", "-n2", "--mpi=pmix"], words)
    place = step.reach_windows().host["ranks"][1]
    done = steps.run([*node.inside(place["hostname"]), "kill", "-KILL", str(place["pid"])])
    assert done.returncode == 0, done.stderr
    result = step.end(40)
    assert result.state == "failed", result.problem
    assert result.exit["code"] != 0
    assert not result.exit["timed_out"], "the other rank noticed, or srun ended it"
