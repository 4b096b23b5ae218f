"""The last line that a job script adds to a log: sealed by a digest, whole, valid JSON whatever a
run printed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm.render import TEMPLATES

SEAL = b', "sha256": "'
OK_END = (
    '{"event": "end", "status": "ok", "checks": {"loss_finite": true}, "samples": 4, "sha256": "'
    + "0" * 64
    + '"}\n'
)
OLD_END = (
    '{"event": "end", "status": "ok", "checks": {"loss_finite": true}, "samples": 384, '
    '"peak_memory_bytes": [null]}\n'
)


def bash(code: str, *words: object, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run `code` behind the functions of the template, which has no placeholder to fill."""
    text = (TEMPLATES / "record.sh.j2").read_text()
    assert "{{" not in text
    script = f"set -u -o pipefail\nLIMIT_S=30\nSTUDY_DIR=.\n{text}\n{code}"
    return subprocess.run(
        ["bash", "-c", script, "bash", *map(str, words)], cwd=cwd, capture_output=True, timeout=60
    )


def record(folder: Path, log: bytes | None, out: bytes = b"", code: int = 0) -> bytes:
    """What a log has become."""
    if log is not None:
        (folder / "log").write_bytes(log)
    (folder / "out").write_bytes(out)
    done = bash('record log out "$1" 3 ""', code, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return (folder / "log").read_bytes()


def sealed(log: bytes) -> dict[str, Any]:
    """The last event, whose digest is that of every byte before it."""
    assert log.endswith(b"\n")
    before, _, digest = log.rpartition(SEAL)
    assert digest == f'{hashlib.sha256(before).hexdigest()}"}}\n'.encode()
    event: dict[str, Any] = json.loads(log.splitlines()[-1])
    assert list(event)[-1] == "sha256"
    return event


LOGS = [
    None,
    b"",
    OK_END.encode(),
    b'{"event": "start"}\n{"event": "ste',
    b'{"a": "\xff\x00"}\n',
    b"\0",
]


@pytest.mark.parametrize("log", LOGS)
def test_the_exit_line_seals_all_before_it(tmp_path: Path, log: bytes | None) -> None:
    after = record(tmp_path, log, code=1)
    event = sealed(after)
    assert (event["event"], event["code"], event["limit_s"], event["wall_s"]) == ("exit", 1, 30, 3)
    assert after.startswith(log or b"")
    assert b"\n\n" not in after  # JSON lines hold no empty one
    assert not after.startswith(b"\n")
    torn = int(bool(log) and not (log or b"").endswith(b"\n"))
    assert after.count(b"\n") == (log or b"").count(b"\n") + 1 + torn


@pytest.mark.parametrize("at", [0, 20, -2])
def test_a_changed_byte_breaks_the_seal(tmp_path: Path, at: int) -> None:
    log = bytearray(record(tmp_path, OK_END.encode()))
    log[at] ^= 1
    with pytest.raises((AssertionError, ValueError)):
        sealed(bytes(log))


HOSTILE = [
    b'error: "quoted" \\ back \x1b[31m \xff\xfe\x00 %s %d $(touch MARK) `touch MARK`\r\ttab\n',
    b'error: , "sha256": "' + b"0" * 64 + b'"}\n',
    "Error: é ü 日本\u2028line".encode(),
    b"error: " + b"\\" * 400 + b"\n" + b'error "' * 100,
    b"\n\n \n\t\n",
    bytes(range(256)) * 40 + b" error",
]


@pytest.mark.parametrize("out", HOSTILE)
def test_the_exit_line_is_json_whatever_a_run_prints(tmp_path: Path, out: bytes) -> None:
    event = sealed(record(tmp_path, OK_END.encode(), out, code=1))
    assert all(isinstance(said, str) and len(said) <= 300 for said in event["said"])
    assert not (tmp_path / "MARK").exists()


@pytest.mark.parametrize("end", [OK_END, OLD_END])
def test_only_a_whole_end_is_ok(tmp_path: Path, end: str) -> None:
    """Torn at every byte: what is left may be closed by a newline, and is still none."""
    code = 'for log in "$@"; do if is_ok "$log"; then echo "$log"; fi; done'
    names = []
    for cut in range(len(end) - 1):
        for name, text in ((f"{cut}-torn", end[:cut]), (f"{cut}-closed", end[:cut] + "\n")):
            (tmp_path / name).write_text('{"event": "start"}\n' + text)
            names.append(name)
    (tmp_path / "whole").write_text('{"event": "start"}\n' + end + '{"event": "exit"}\n')
    (tmp_path / "failed").write_text(end.replace('"ok"', '"failed: x"'))
    (tmp_path / "quoted").write_text(
        '{"event": "error", "message": ' + json.dumps(end.strip()) + "}\n"
    )
    done = bash(code, *names, "failed", "quoted", "missing", "whole", cwd=tmp_path)
    assert (done.stdout, done.stderr) == (b"whole\n", b"")


def test_a_log_that_cannot_be_written_is_noticed(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: bash counts it in KiB."""
    (tmp_path / "out").write_text("")
    (tmp_path / "log").write_bytes(b"x" * 1020 + b"\n")
    (tmp_path / "runs").mkdir()
    done = bash(
        "trap '' XFSZ; ulimit -f 1; record log out 0 3 '' || echo noticed; has_room || echo full",
        cwd=tmp_path,
    )
    assert done.stdout == b"noticed\nfull\n"
    assert done.stderr == b""
    assert bash("has_room && ls -A runs && echo room", cwd=tmp_path).stdout == b"room\n"
