"""Damaged run logs: unusable with a reason, or read with every number and fact unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.record import STATES, parse_run
from plots.analyse.row import row_of
from plots.read.runs import find_study
from tests.plots import logs

NO_STUDY, _ = find_study(Path("nowhere"))
ODD = (b"", b"\n", b"\x00", b'"', b"}", b"0", b"NaN", b"1e308", b"null", b"[" * 3000, b"1" * 400)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("logs") / "run.jsonl"
    written = logs.write(path, logs.config("ddp/mpi", 2), 0.1).read_bytes()
    return b"".join(x for x in written.splitlines(keepends=True) if b'"event": "exit"' not in x)


def used(data: bytes) -> tuple[str, str, str]:
    """State, reason, and all that a report takes from a log."""
    run = parse_run(Path("x.jsonl"), data)
    assert run.state in STATES
    assert (run.problem is None) == (run.state == "ok")
    assert "\n" not in (run.problem or "")
    taken = (row_of(run, NO_STUDY), run.host, run.workload) if run.state == "ok" else ()
    return run.state, run.problem or "", repr(taken)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    at=st.floats(0, 1),
    cut=st.integers(0, 8),
    put=st.sampled_from(ODD) | st.binary(max_size=8),
    lines=st.sampled_from(["kept", "dropped", "doubled", "swapped", "cut off"]),
    sealed=st.booleans(),
)
def test_damage_gives_a_reason_or_changes_nothing(
    source: bytes, at: float, cut: int, put: bytes, lines: str, sealed: bool
) -> None:
    """Where the digest fits the damage, all other checks are left, and none ends in a traceback."""
    place = int(at * len(source))
    data = source[:place] + put + source[place + cut :]
    each = data.splitlines(keepends=True)
    i = int(at * (len(each) - 1))
    one, two = each[i : i + 1], each[i + 1 : i + 2]
    changed = {"kept": one + two, "dropped": two, "doubled": one + one + two, "swapped": two + one}
    data = b"".join([*each[:i], *changed.get(lines, []), *each[i + 2 :]])
    data = data[:place] if lines == "cut off" else data
    found = used(logs.resealed(data) if sealed else data)
    assert found == used(source) or found[0] != "ok" or sealed
