"""The last line of a log: whole, valid JSON whatever a run printed, or an error."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from bench.record import parse_run
from slurm.driver.closing import NoRoom, check_room, close
from slurm.driver.steps import Ended

HOSTILE = [
    b'error: "quoted" \\ back \x1b[31m \xff\xfe\x00 %s %d $(touch MARK) `touch MARK`\r\ttab\n',
    b'error: , "sha256": "' + b"0" * 64 + b'"}\n',
    b"error: " + b"\\" * 400 + b"\n" + b'error "' * 100,
]


@pytest.mark.parametrize("out", HOSTILE)
@pytest.mark.parametrize(
    "log", [None, b'{"event": "error", "rank": 0, "message": "x"}\n{"ev', b"\0"]
)
def test_the_exit_line_is_json_whatever_a_run_prints(
    tmp_path: Path, log: bytes | None, out: bytes
) -> None:
    path = tmp_path / "log"
    if log is not None:
        path.write_bytes(log)
    (tmp_path / "out").write_bytes(out)
    ended = Ended(1, timed_out=False, wall_s=3)
    close(path, tmp_path / "out", ended, limit_s=30, stopped=False, oom_kills_before=0)
    assert path.read_bytes().startswith(log or b"")
    event = json.loads(path.read_bytes().splitlines()[-1])
    assert (event["event"], event["code"], event["limit_s"], event["wall_s"]) == ("exit", 1, 30, 3)
    assert all(isinstance(said, str) and len(said) <= 300 for said in event["said"])
    assert parse_run(path, path.read_bytes()).damage is None, "its digest fits"


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
