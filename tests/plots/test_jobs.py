"""Whatever stands in jobs/*.jsonl, calibrations are listed or their absence explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plots.analyse import comparability
from plots.read import calibrations
from tests.plots import logs

NODES = {"r1": 1.0, "r2": 1.1}
LOST = "its job did not live to record it"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    logs.in_job(tmp_path, logs.Job("7", 0, NODES), {"ddp/mpi": (2, 1.0)})
    return tmp_path


def said(folder: Path) -> Path:
    return folder / "jobs" / "n002-b00.jsonl"


def found(folder: Path) -> dict[str, str]:
    """Reason of each calibration by its log or node; '' where it has a number."""
    return {
        c.log or f"{c.node} {c.when}": c.reason
        for c in calibrations.read(folder, comparability.facts) or ()
    }


def test_what_a_job_recorded_is_read(folder: Path) -> None:
    assert len(found(folder)) == 4
    assert set(found(folder).values()) == {""}


@pytest.mark.parametrize(
    "fields",
    [
        {"log": "x" * 300 + ".jsonl"},
        {"log": "\x00"},
        {"log": "../runs/a.jsonl"},
        {"log": ["a"]},
        {"when": ["start"]},
        {"node": 3},
        {"node": "\ud800"},
        {"node": "n" * 1_000_000},
        {"job": {"a": 1}},
        {"job": 10**5000 // 7},
        {"restart": 1.5},
        {"event": None},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_record_of_the_wrong_shape_is_none_and_its_log_is_listed_as_lost(
    folder: Path, fields: dict[str, Any]
) -> None:
    first, *others = said(folder).read_text().splitlines()
    event = json.loads(first)
    number = fields.get("job")
    text = json.dumps(
        {**event, **fields, "job": 0 if isinstance(number, int) else fields.get("job", "7")}
    )
    if isinstance(number, int):
        text = text.replace('"job": 0', f'"job": {"9" * 5000}')
    said(folder).write_text("\n".join([text, *others]) + "\n")
    assert found(folder)[event["log"]] == LOST
    assert len(found(folder)) == 4


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b"[]",
        b"3",
        b"null",
        b'{"event": "cal',
        b"\xff\xfe",
        b'"' + b"x" * 1_000_000 + b'"',
    ],
)
def test_a_line_that_is_no_event_says_nothing(folder: Path, line: bytes) -> None:
    said(folder).write_bytes(line + b"\n" + said(folder).read_bytes() + line)
    assert set(found(folder).values()) == {""}
