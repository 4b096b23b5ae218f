"""The repeated studies that ship: their table is what their logs say, and the instrument holds."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.study.files import read_study
from tests import repeats

SHIPPED = Path(__file__).parents[1] / "results" / "repeats"


def test_the_shipped_table_is_what_the_logs_say() -> None:
    equal, injected = repeats.counted(SHIPPED)
    with (SHIPPED / repeats.TABLE).open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["study"] for row in table] == [one.study for one in (*equal, *injected)]
    for row, one in zip(table, (*equal, *injected), strict=True):
        assert (row["verdict"], int(row["seed"])) == (one.verdict, one.seed)
        for name in ("ratio", "low", "high", "half_width", "step_ms", "inject_ms"):
            assert float(row[name]) == pytest.approx(getattr(one, name), rel=1e-12)
    assert (len(equal), len(injected)) == (20, 20)
    assert sum(one.called for one in equal) <= 1
    assert all(one.slower for one in injected)
    assert {one.inject_ms for one in injected} == {repeats.sleep_ms(equal)}


def test_a_sleep_that_is_looked_for_is_more_than_its_margin(tmp_path: Path) -> None:
    """By the shipped half-widths; else "equal" would be right."""
    equal, _ = repeats.counted(SHIPPED)
    sleep_ms = repeats.sleep_ms(equal)
    studies = {
        kind: read_study(repeats.study(kind, 1, tmp_path, sleep_ms * (kind == "injected")))
        for kind in repeats.KINDS
    }
    assert {kind: study.arms for kind, study in studies.items()} == {
        "aa": {},
        "injected": {"again": {"inject_ms": sleep_ms}},
    }
    slowest_ms = max(one.step_ms for one in equal)
    assert sleep_ms / slowest_ms > 2 * studies["injected"].margin
