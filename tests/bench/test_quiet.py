"""What others take of a machine, and what of it the kernel's counters tell."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from bench.launch import cores
from bench.launch.cores import Ticks, busy_share
from bench.record import quiet

STAT = """cpu  9 9 9 9 9 9 9 9 9 9
cpu0 10 0 20 60 5 1 1 3 99 99
cpu1 100 0 0 0 0 0 0 0 0 0
cpu10 1000 0 0 0 0 0 0 0 0 0
"""


def test_busy_cores_are_those_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text(STAT)
    monkeypatch.setattr(cores, "_STAT", tmp_path / "stat")
    for affinity, expected in (
        ({0}, Ticks(worked=30, interrupted=2, stolen=3, idle=65)),
        ({0, 1}, Ticks(130, 2, 3, 65)),
        ({0, 2}, None),
    ):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, known=affinity: known)
        assert cores.ticks() == expected
    assert cores.of_the_node() == Ticks(27, 18, 9, 18)
    assert busy_share(Ticks(30, 2, 3, 65), Ticks(50, 7, 8, 75)) == 0.75
    assert busy_share(Ticks(1, 0, 0, 1), Ticks(1, 0, 0, 1)) is None
    assert busy_share(None, Ticks(1, 0, 0, 1)) is None


def test_all_that_is_not_of_this_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 ticks: 550 of processes, 400 of them its own, 50 stolen."""
    nodes = iter([Ticks(5000, 7, 70, 9000), Ticks(5550, 9, 120, 9400)])
    ticks = iter([10, 410])
    monkeypatch.setattr(cores, "of_the_node", lambda: next(nodes))
    monkeypatch.setattr(cores, "own_ticks", lambda process: next(ticks))
    assert quiet.look(0.0) == 0.2
    # ticks of threads that wake often can add up to more than their node, and hide nothing stolen
    assert quiet.share_of_others(busy=400, idle=550, stolen=50, run_ticks=900) == 0.05


def test_a_real_neighbour_is_found_and_a_child_is_none() -> None:
    """A neighbour has no parent here."""
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as child:
        before = cores.own_ticks(os.getpid())
        start = "while :; do :; done >/dev/null 2>&1 & echo $!"
        neighbour = int(subprocess.check_output(["sh", "-c", start]))
        try:
            share = quiet.look(1.0)
            spent = cores.own_ticks(os.getpid()) - before
        finally:
            os.kill(neighbour, signal.SIGKILL)
            child.kill()
    assert share is not None
    assert share > quiet.NOISY
    assert spent > 2, "of the child's, which go on"
