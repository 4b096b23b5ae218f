"""A log's lines without what stands around them: encodings, wrappers, colours, tags of ranks."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.config import UsageError

_PACKED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd"}
# terminal codes as they are, and as caret notation and syslog write the escape character
_COLOUR = re.compile(r"(?:\x1b|\^\[|#033)(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\n]*\x07)")
# Open MPI, PRRTE, horovodrun: [1,0]<stdout>: ; torchrun and its errors: [default0]: and [rank0]:
# SkyPilot: (head, rank=0, pid=17266)
_TAG = re.compile(
    r"[^<\n]{0,60}?\[(?:[\w.-]+@)?(?:\d+,)?(\d+)\](?:\[[^\]\s]*\])?<std(?:out|err|diag)>:? ?"
    r"|\[(?:default|rank)(\d+)\]:? ?|\([^()\n]{0,40}\brank=(\d+),[^()\n]*\) ?"
)
_TAGS_OF_ALL = (r" *(\d+):(?: |$)", r"\[(\d+)\](?: |$)")  # srun -l and mpiexec -l: on every line
_OF_SLURM = ("srun: ", "slurmstepd: ")  # but on its own
_MESSAGES = ("log", "message", "msg", "textPayload")  # of loggers that write JSON


class Line(NamedTuple):
    """One line; `rank` where a launcher tagged it."""

    number: int
    text: str
    rank: int | None = None


@dataclass(frozen=True)
class Log:
    """One file. `ended`: its last line has a line end; `overwritten`: states of progress bars."""

    name: str
    lines: Sequence[Line]
    ended: bool = True
    overwritten: int = 0

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)


def decode(data: bytes, name: str = "log") -> Log:
    """A file's lines. Raises UsageError where it is compressed in a way that is not read here."""
    text = _unwrapped(_COLOUR.sub("", _text(_unpacked(data))).replace("#011", "\t"))
    text = re.sub(r"[\r\b]+", "\r", text).replace("\r\n", "\n")
    if "\n" not in text:
        text = text.replace("\r", "\n")  # line ends of old
    lines, overwritten = [], 0
    for line in text.removesuffix("\n").split("\n") if text else []:
        states = [state for state in line.split("\r") if state.strip()]
        overwritten += max(0, len(states) - 1)
        lines.append(states[-1] if states else "")  # what a terminal goes on to show
    return Log(name, _tagged(lines), text.endswith("\n") or not text, overwritten)


def _unpacked(data: bytes) -> bytes:
    for mark, kind in _PACKED.items():
        if data.startswith(mark):
            raise UsageError(f"it is compressed with {kind}; unpack it first")
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error):
        raise UsageError("its gzip data are damaged or cut off; copy it again") from None


def _text(data: bytes) -> str:
    """With or without a byte order mark; never fails."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    head = data[:4000]
    for first, coding in ((1, "utf-16-le"), (0, "utf-16-be")):  # Latin text: every other byte is 0
        if len(head) > 3 and head[first::2].count(0) > 0.8 * (len(head) // 2) > 5 * head[
            1 - first :: 2
        ].count(0):
            return data.decode(coding, errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def _unwrapped(text: str) -> str:
    """The lines inside a notebook, or inside the JSON of docker and of loggers."""
    if '"nbformat"' in text and text.lstrip().startswith("{"):
        try:
            return "\n".join(_outputs(json.loads(text)))
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise UsageError(
                "it is a damaged notebook; save it again, or copy its output"
            ) from None
    if not re.search(r"^\s*\{.*\}\s*$", text, re.MULTILINE):
        return text
    return "".join(_message(line) for line in text.splitlines(keepends=True))


def _outputs(notebook: Any) -> Iterator[str]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            for words in (output.get("text"), output.get("data", {}).get("text/plain")):
                if words:
                    yield "".join(words)


def _message(line: str) -> str:
    if not line.lstrip().startswith("{"):
        return line
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return line
    for key in _MESSAGES:
        if isinstance(words := fields.get(key), str):
            return words if key == "log" or words.endswith("\n") else words + "\n"
    return line


def _tagged(lines: Sequence[str]) -> list[Line]:
    tag = _TAG
    written = [x for x in lines if x.strip() and not x.startswith(_OF_SLURM)]
    for pattern in map(re.compile, _TAGS_OF_ALL):
        if written and all(map(pattern.match, written)):
            tag = pattern
    tagged = []
    for number, line in enumerate(lines, 1):
        match = tag.match(line)
        rank = int(next(filter(None, match.groups()))) if match else None
        tagged.append(Line(number, line[match.end() :] if match else line, rank))
    return tagged
