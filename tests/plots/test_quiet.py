"""A run on a machine that was not quiet is flagged, from counters, on the node that it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.study.frames import load
from plots.analyse.study import analyse
from plots.report.findings import checks, findings, terminal
from tests.plots import logs

START = {"busy_jiffies": 5000, "idle_jiffies": 9000, "steal_jiffies": 70, "own_jiffies": 300}


def ran(path: Path, launch: int, busy: int, steal: int, **place: str) -> None:
    """Write a run on two nodes of 1000 ticks; each rank spends 600, and the second meets others."""
    provenance = logs.host(2)
    ends: dict[str, Any] = {name: [] for name in START}
    for rank, name in zip(provenance["ranks"], ("a", "b"), strict=True):
        rank |= START | {"hostname": name} | place
        more = (busy, steal) if name == "b" else (0, 0)
        spent = {"busy_jiffies": 600 + more[0], "steal_jiffies": more[1], "own_jiffies": 600}
        spent["idle_jiffies"] = 1000 - spent["busy_jiffies"] - spent["steal_jiffies"]
        for counter, ticks in spent.items():
            ends[counter].append(START[counter] + ticks)
    run = logs.config("ddp/mpi", 2, launch=launch)
    logs.write(path / f"{launch}.jsonl", run, 0.1, provenance=provenance, end=ends)


def test_what_others_took_is_of_the_worst_node_and_machine(tmp_path: Path) -> None:
    """Nodes of one kernel read the same counters: 660 of its ticks were busy, by both's ranks.

    Kernel ticks miss threads that wake shortly, so ranks count more than their node, and hide
    nothing that was stolen. Runs without the counters, and those of version 1.0 with servers, whose
    own time no log holds, say nothing.
    """
    for launch, others in enumerate(((0, 0), (19, 0), (100, 0), (10, 40), (-60, 40), (600, 0))):
        ran(tmp_path, launch, *others)
    ran(tmp_path, 6, 600, 0, boot_id="x")
    place = logs.host(2)
    for rank, name in zip(place["ranks"], ("a", "b"), strict=True):
        rank["hostname"] = name
    old = logs.config("ddp/mpi", 2, launch=9)
    logs.write(tmp_path / "old.jsonl", old, 0.1, provenance=place)
    loaded = load(tmp_path)
    shares = loaded.runs.set_index("log")["others_share"]
    assert shares[:7].tolist() == pytest.approx([0.0, 0.019, 0.1, 0.05, 0.04, 0.6, 0.0])
    assert shares.isna()["old.jsonl"]
    (check,) = [c for c in checks(analyse(loaded)) if c.name.startswith("busy in")]
    assert (check.name, check.holds) == ("busy in 4 of 7 runs", False)
    assert check.text.endswith("at most 60 % (5.jsonl).")
    printed = terminal(findings(analyse(loaded)), tmp_path / "report.html")
    assert check.name in printed[-2].partition("In doubt: ")[2]
    served = load(Path(__file__).parents[2] / "results/sync-async").runs
    assert (served["others_share"].notna() == ~served["cell"].str.startswith("ps/")).all()
