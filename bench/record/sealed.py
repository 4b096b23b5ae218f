"""A run log as bytes: whole lines, closed with digests that show a later change."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SEALED = ("end", "exit")  # events that carry a digest of all before them
_SEAL = b', "sha256": "'


def append(fd: int, path: Path, event: str, fields: Mapping[str, Any]) -> None:
    """Write one line at the file's end, on a line of its own even after a torn one."""
    size = os.fstat(fd).st_size
    torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    text = json.dumps(finite({"event": event, **fields}), allow_nan=False)
    line = b"\n" * torn + text.encode() + b"\n"
    if event in SEALED:
        line = seal(os.pread(fd, size, 0), line)  # what this rank and others have written so far
    while line:  # a disk that is nearly full takes a part
        try:
            line = line[os.write(fd, line) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def seal(before: bytes, line: bytes) -> bytes:
    """Add the digest to the line of an `end` or `exit`, for its place after the bytes `before`."""
    head = line.removesuffix(b"}\n")
    return head + _SEAL + hashlib.sha256(before + head).hexdigest().encode() + b'"}\n'


def finite(value: Any) -> Any:
    """Replace the numbers that JSON does not have in `value` by 'nan', 'inf' and '-inf'."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
    return value


class LogLine(NamedTuple):
    """A line of a log, from 1, without its newline."""

    number: int
    start: int  # bytes before it
    text: bytes


def lines_of(data: bytes) -> Iterator[LogLine]:
    """Yield the lines that are not empty; one may be, between a torn line and the next one."""
    start = 0
    for number, text in enumerate(data.split(b"\n"), 1):
        if text.strip():
            yield LogLine(number, start, text)
        start += len(text) + 1


def changed(
    events: Sequence[Mapping[str, Any]], lines: Sequence[LogLine], data: bytes
) -> Iterator[str]:
    """Name digests that are wrong or missing. A right one proves that no key stands twice."""
    for event, line in zip(events, lines, strict=True):
        if event["event"] in SEALED:
            head = line.text.rpartition(_SEAL)[0]
            if seal(data[: line.start], head + b"}\n") != line.text.rstrip() + b"\n":
                fault = f"the digest in its {event['event']} does not fit"
                yield f"the log was changed after it was written: {fault}"
