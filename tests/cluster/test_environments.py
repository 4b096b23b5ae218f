"""Ranks know their place from what the real srun tells them, and the recorded environments are what
it tells.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.launch.world import discover
from tests.cluster.environments import FOLDER, PLUG_INS, see

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("plug_in", PLUG_INS)
def test_five_ranks_on_three_nodes(tmp_path: Path, plug_in: str) -> None:
    seen = see(plug_in, tmp_path)
    launches = [discover(env) for env in seen]
    assert [(launch.rank, launch.local_rank, launch.local_size) for launch in launches] == [
        (0, 0, 3),
        (1, 1, 3),
        (2, 2, 3),
        (3, 0, 1),
        (4, 0, 1),
    ]
    assert {(launch.source, launch.size) for launch in launches} == {("srun", 5)}
    assert len({launch.key for launch in launches}) == 1
    recorded = json.loads((FOLDER / f"srun_{plug_in}.json").read_text())
    assert recorded["source"] == "recorded"
    for rank in recorded["ranks"]:
        assert set(rank["env"]) == set(seen[rank["launch"][1]]), (
            "python -m tests.cluster.environments records them anew"
        )
