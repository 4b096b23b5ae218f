"""Runs that take turns under srun: on one and several nodes, and cut short in the middle of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.ranks import thorough
from tests.cluster import config, daemons, node, steps
from tests.cluster.steps import LOST
from tests.cluster.studies import Tiny, end_of, site
from tests.cluster.test_studies import TWO_NODES, bring_the_limit

pytestmark = pytest.mark.cluster

ONE_RANK = {"ranks_per_node": "1", "requeue": "false"}
CASES = {
    1: ("single", "ddp/gloo", "horovod/gloo"),
    2: ("ddp/mpi", "horovod/mpi"),
    4: ("ddp/gloo", "horovod/gloo"),
}


@pytest.mark.parametrize("nodes", [1, 2, thorough(4)])
def test_worlds_take_turns_on_nodes(tmp_path: Path, nodes: int) -> None:
    cells = CASES[nodes]
    tiny = Tiny(tmp_path, site(tmp_path, **ONE_RANK), cells=cells, nodes=nodes, turns=True)
    tiny.submit()
    assert f"tiny: {len(cells)} runs: {len(cells)} ok" in tiny.wait(), tiny.printed()
    logs = tiny.logs()
    assert len({run.host["turns"]["launch"] for run in logs}) == 1
    assert sorted(run.host["turns"]["turn"] for run in logs) == list(range(len(cells)))
    assert {run.hosts for run in logs} == {config.NODES[:nodes]}
    assert not any("apart" in run.exit for run in logs)


def stopped_in_a_turn(tmp_path: Path, policy: str = "false") -> tuple[Tiny, str]:
    """Two runs on two nodes: one is held in its first step, the other is stopped meanwhile."""
    own = site(tmp_path, TWO_NODES, ranks_per_node="1", requeue=policy)
    tiny = Tiny(tmp_path, own, turns=True)
    job = tiny.submit()
    tiny.stop_in_first_run()
    return tiny, job


@pytest.mark.parametrize("how", ["scancel", thorough("time limit")])
def test_a_job_that_is_ended_in_a_turn(tmp_path: Path, how: str) -> None:
    tiny, job = stopped_in_a_turn(tmp_path)
    if how == "scancel":
        steps.run(["scancel", job])
    else:
        bring_the_limit(job)
    assert end_of(job) in ("CANCELLED", "FAILED")
    assert not steps.leftovers()
    states = tiny.states()
    assert len(states) == 2
    assert set(states) <= {"interrupted", "failed"}, [run.problem for run in tiny.logs()]
    assert "interrupted" in states


@pytest.mark.thorough
def test_a_node_lost_in_a_turn(tmp_path: Path, node_to_lose: None) -> None:
    tiny, job = stopped_in_a_turn(tmp_path, "false\nno_kill = true")
    node.lose(LOST)
    tiny.release_after_first_run()  # or the calibration at the end would be held as well
    assert end_of(job) == "FAILED"
    assert not steps.leftovers(40)
    states, problems = tiny.states(), [str(run.problem) for run in tiny.logs()]
    assert len(states) == 2
    assert "node lost" in states, problems
    assert set(states) <= {"node lost", "failed"}, problems
    node.start(LOST)
    daemons.wait_idle(config.NODES, 60)
    tiny.resume()
    assert "tiny: 2 runs: 2 ok" in tiny.wait()
