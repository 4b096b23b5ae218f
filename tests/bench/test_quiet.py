"""What others take of a machine, while nothing of this project runs there."""

from __future__ import annotations

import pytest

from bench.launch import machine
from bench.launch.machine import Ticks


def test_all_that_is_not_of_this_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 ticks: 550 of processes, 400 of them its own, 50 stolen."""
    nodes = iter([Ticks(5000, 7, 70, 9000), Ticks(5550, 9, 120, 9400)])
    ticks = iter([10, 410])
    monkeypatch.setattr(machine, "node_ticks", lambda: next(nodes))
    monkeypatch.setattr(machine, "family_ticks", lambda process: next(ticks))
    assert machine.others_now(0.0) == 0.2
    # ticks of threads that wake often can add up to more than their node, and hide nothing stolen
    assert machine.share_of_others(busy=400, idle=550, stolen=50, run_ticks=900) == 0.05
    monkeypatch.undo()
    assert 0 <= (machine.others_now(0.1) or 0) <= 1, "of this machine"
