"""The smoke test: real ranks of all four cells, and what it calls wrong."""

from __future__ import annotations

import sys

import pytest

from bench.tools.smoke import CELLS, TriedCell, problem
from tests.bench.ranks import run

GOOD = [TriedCell(cell, "", 100.0, True, "ab") for cell in CELLS]


def test_what_is_wrong_is_said() -> None:
    assert problem(GOOD) == ""
    for bad in (TriedCell(CELLS[0], "no MPI"), GOOD[0]._replace(parity=None)):
        assert problem([*GOOD[1:], bad]).startswith("ddp/mpi failed, or parity is not proven")
    parted = GOOD[0]._replace(parameters="cd")
    assert problem([*GOOD[1:], parted]).endswith("ended with different parameters")


@pytest.mark.ranks
def test_both_frameworks_do_the_same_work_over_both_transports() -> None:
    done = run([sys.executable, "-m", "bench.tools.smoke"])
    assert done.returncode == 0, done.stdout + done.stderr
    *rows, last = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == [*CELLS]
    assert all("images/s  parity holds  parameters " in row for row in rows)
    assert last == "all ended with the same parameters"
