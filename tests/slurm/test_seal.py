"""The last line of a log: sealed by a digest, whole, valid JSON whatever a run printed."""

from __future__ import annotations

import hashlib
import json
import resource
from pathlib import Path

import pytest

from slurm.driver.closing import NoRoom, check_room, close, oom_kills
from slurm.driver.steps import Ended

TORN = b'{"event": "start"}\n{"event": "ste'
SAID = [
    b'error: "quoted" \\ back \x1b[31m \xff\xfe\x00 %s %d $(touch MARK) `touch MARK`\r\ttab\n',
    b'error: , "sha256": "' + b"0" * 64 + b'"}\n',
    b"error: " + b"\\" * 400 + b"\n" + b'error "' * 100,
    bytes(range(256)) * 40 + b" error",
]


@pytest.mark.parametrize("log", [None, b"", TORN, b'{"a": "\xff\x00"}\n'])
@pytest.mark.parametrize("said", SAID)
def test_the_exit_line_seals_all_before_it(tmp_path: Path, log: bytes | None, said: bytes) -> None:
    path, out = tmp_path / "log", tmp_path / "out"
    if log is not None:
        path.write_bytes(log)
    out.write_bytes(said)
    ended = Ended(1, timed_out=False, wall_s=3)
    close(path, out, ended, limit_s=30, stopped=False, oom_kills_before=oom_kills())
    after = path.read_bytes()
    before, _, digest = after.rpartition(b', "sha256": "')
    assert digest == f'{hashlib.sha256(before).hexdigest()}"}}\n'.encode()
    event = json.loads(after.splitlines()[-1])
    assert (event["event"], event["code"], event["limit_s"], event["wall_s"]) == ("exit", 1, 30, 3)
    assert all(isinstance(words, str) and len(words) <= 300 for words in event["said"])
    assert after.startswith(log or b"")
    lines = (log or b"").count(b"\n") + 1 + (log == TORN)
    assert (after.count(b"\n"), after.startswith(b"\n"), b"\n\n" in after) == (lines, False, False)


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
