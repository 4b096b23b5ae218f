"""The last line of a log: sealed by a digest, whole, valid JSON whatever a run printed."""

from __future__ import annotations

import hashlib
import json
import resource
from pathlib import Path
from typing import Any

import pytest

from slurm.driver.closing import NoRoom, check_room, close, oom_kills
from slurm.driver.steps import Ended

SEAL = b', "sha256": "'
OK_END = (
    '{"event": "end", "status": "ok", "checks": {"loss_finite": true}, "samples": 4, "sha256": "'
    + "0" * 64
    + '"}\n'
)


def record(folder: Path, log: bytes | None, out: bytes = b"", code: int = 0) -> bytes:
    """What a log has become."""
    if log is not None:
        (folder / "log").write_bytes(log)
    (folder / "out").write_bytes(out)
    ended, before = Ended(code, timed_out=False, wall_s=3), oom_kills()
    files = folder / "log", folder / "out"
    close(*files, ended, limit_s=30, stopped=False, oom_kills_before=before)
    return (folder / "log").read_bytes()


def sealed(log: bytes) -> dict[str, Any]:
    """The last event, whose digest is that of every byte before it."""
    assert log.endswith(b"\n")
    before, _, digest = log.rpartition(SEAL)
    assert digest == f'{hashlib.sha256(before).hexdigest()}"}}\n'.encode()
    event: dict[str, Any] = json.loads(log.splitlines()[-1])
    assert list(event)[-1] == "sha256"
    return event


LOGS = [None, b"", OK_END.encode(), b'{"event": "start"}\n{"event": "ste', b"\0"]


@pytest.mark.parametrize("log", LOGS)
def test_the_exit_line_seals_all_before_it(tmp_path: Path, log: bytes | None) -> None:
    after = record(tmp_path, log, code=1)
    event = sealed(after)
    assert (event["event"], event["code"], event["limit_s"], event["wall_s"]) == ("exit", 1, 30, 3)
    assert after.startswith(log or b"")
    torn = int(bool(log) and not (log or b"").endswith(b"\n"))
    assert after.count(b"\n") == (log or b"").count(b"\n") + 1 + torn


HOSTILE = [
    b'error: "quoted" \\ back \x1b[31m \xff\xfe\x00 %s %d $(touch MARK) `touch MARK`\r\ttab\n',
    b'error: , "sha256": "' + b"0" * 64 + b'"}\n',
    b"error: " + b"\\" * 400 + b"\n" + b'error "' * 100,
]


@pytest.mark.parametrize("out", HOSTILE)
def test_the_exit_line_is_json_whatever_a_run_prints(tmp_path: Path, out: bytes) -> None:
    event = sealed(record(tmp_path, OK_END.encode(), out, code=1))
    assert all(isinstance(said, str) and len(said) <= 300 for said in event["said"])
    assert not (tmp_path / "MARK").exists()


def test_a_log_that_cannot_be_written_is_noticed(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; what was written stays."""
    log, ended = tmp_path / "log", Ended(0, timed_out=False, wall_s=3)
    log.write_bytes(b"x" * 1023 + b"\n")
    (tmp_path / "out").write_text("")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(NoRoom, match="log cannot be written: File too large"):
            close(log, tmp_path / "out", ended, limit_s=30, stopped=False, oom_kills_before=0)
        with pytest.raises(NoRoom):
            check_room(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.read_bytes() == b"x" * 1023 + b"\n"
    assert {path.name for path in tmp_path.iterdir()} == {"log", "out"}
    check_room(tmp_path)
