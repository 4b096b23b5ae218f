"""What others take of a machine: own processes do not count, those that took most are named."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from bench.launch import cores
from bench.record import quiet
from bench.record.quiet import Others, Watch

RANK, HOST = b"python\0-m\0bench", socket.gethostname()
Row = tuple[str, int, int, int, bytes]


def watch(
    monkeypatch: pytest.MonkeyPatch, node: list[cores.Ticks], processes: list[dict[int, Row]]
) -> Others | None:
    """Between two looks at a given machine: its ticks, and of each process `_ProcessTicks`."""
    ticks, tables = iter(node), iter(processes)

    def table() -> Iterator[tuple[int, quiet._ProcessTicks]]:
        return ((pid, quiet._ProcessTicks(*row)) for pid, row in next(tables).items())

    monkeypatch.setattr(cores, "of_the_node", lambda: next(ticks))
    monkeypatch.setattr(quiet, "_processes", table)
    return Watch().others()


def test_all_that_is_not_of_this_run_counts_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 ticks: 400 of two ranks and their loader, 150 of others, 50 stolen."""
    me = os.getpid()
    before: dict[int, Row] = {
        me: ("python", 1, 10, 10, RANK),
        501: ("python", 1, 20, 20, RANK),
        600: ("cc1plus", 1, 900, 900, b"cc1plus\0a.cc"),
        700: ("sshd", 1, 40, 40, b"sshd"),
        702: ("top", 1, 5, 5, b"top"),
    }
    after: dict[int, Row] = {
        me: ("python", 1, 210, 210, RANK),
        501: ("python", 1, 70, 120, RANK),  # 50 of them by a child that has ended
        502: ("loader", 501, 100, 100, b"loader"),
        600: ("cc1plus", 1, 940, 940, b"cc1plus\0a.cc"),
        700: ("sshd", 1, 40, 40, b"sshd"),
        701: ("make", 1, 60, 60, b"make"),
        702: ("top", 1, 7, 7, b"top"),
    }
    node = [cores.Ticks(5000, 7, 70, 9000), cores.Ticks(5550, 9, 120, 9400)]
    others = watch(monkeypatch, node, [before, after])
    assert others == Others(HOST, 0.2, 0.05, ("make (701)", "cc1plus (600)"))
    assert others.noisy
    took = f"other processes take 15 % of {HOST}'s processor time, most of it make (701), "
    assert str(others) == f"{took}cc1plus (600), other guests of its host 5 %"


def test_one_threshold_for_the_warning_and_for_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    me: dict[int, Row] = {os.getpid(): ("python", 1, 0, 0, RANK)}
    for taken, noisy in ((20, False), (21, True)):
        node = [cores.Ticks(0, 0, 0, 0), cores.Ticks(taken, 0, 0, 1000 - taken)]
        others = watch(monkeypatch, node, [me, me])
        assert others is not None
        assert others.noisy is noisy
    short = [cores.Ticks(0, 0, 0, 0), cores.Ticks(40, 0, 0, 0)]
    assert watch(monkeypatch, short, [me, me]) is None, "too short to tell"


def test_a_real_neighbour_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no parent here: what a rank starts is its own. Tests beside this one may take more."""
    monkeypatch.setattr(quiet, "_MOST_NAMES", 1000)
    start = "while :; do :; done >/dev/null 2>&1 & echo $!"
    neighbour = int(subprocess.check_output(["sh", "-c", start]))
    try:
        others = quiet.look(1.0)
    finally:
        os.kill(neighbour, signal.SIGKILL)
    assert others is not None
    assert others.noisy
    assert f"sh ({neighbour})" in others.processes
