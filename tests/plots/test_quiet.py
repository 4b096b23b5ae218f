"""A run on a machine that was not quiet is flagged, from counters, on the node that it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plots.analyse.runs import load
from plots.analyse.study import analyse
from tests.plots import logs

START = {"busy_jiffies": 5000, "idle_jiffies": 9000, "steal_jiffies": 70, "own_jiffies": 300}


def ran(path: Path, block: int, busy: int, steal: int, node: str = "b") -> None:
    """Two ranks on two nodes of 1000 ticks each; each spends 600, and `node` meets others."""
    provenance = logs.host(2)
    ends: dict[str, Any] = {name: [] for name in START}
    for rank, name in zip(provenance["ranks"], ("a", "b"), strict=True):
        rank |= START | {"hostname": name}
        more = (busy, steal) if name == node else (0, 0)
        spent = {"busy_jiffies": 600 + more[0], "steal_jiffies": more[1], "own_jiffies": 600}
        spent["idle_jiffies"] = 1000 - spent["busy_jiffies"] - spent["steal_jiffies"]
        for counter, ticks in spent.items():
            ends[counter].append(START[counter] + ticks)
    run = logs.config("ddp/mpi", 2, block=block)
    logs.write(path / f"{block}.jsonl", run, 0.1, provenance=provenance, end=ends)


def test_what_others_took_is_told_of_the_worst_node(tmp_path: Path) -> None:
    for block, others in enumerate(((0, 0), (19, 0), (100, 0), (10, 40))):
        ran(tmp_path, block, *others)
    logs.write(tmp_path / "old.jsonl", logs.config("ddp/mpi", 2, block=9), 0.1)
    loaded = load(tmp_path)
    told = loaded.runs.set_index("log")["others_share"]
    assert told[:4].tolist() == pytest.approx([0.0, 0.019, 0.1, 0.05])
    assert told.isna()["old.jsonl"]
    (note,) = [n for n in analyse(loaded).notes if "quiet" in n]
    assert note.startswith("The machine was not quiet in 2 of 4 runs: others took more than 2 % ")
    assert note.endswith("at most 10 % (2.jsonl)")


def test_a_quiet_study_says_nothing(tmp_path: Path) -> None:
    ran(tmp_path, 0, 0, 0)
    assert not [n for n in analyse(load(tmp_path)).notes if "quiet" in n]
