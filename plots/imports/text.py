"""A log's lines without what stands around them: colours, and tags of ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Open MPI, PRRTE, horovodrun: [1,0]<stdout>: ; torchrun and its errors: [default0]: and [rank0]:
_TAG = re.compile(
    r"[^<\n]{0,60}?\[(?:[\w.-]+@)?(?:\d+,)?(\d+)\](?:\[[^\]\s]*\])?<std(?:out|err|diag)>:? ?"
    r"|\[(?:default|rank)(\d+)\]:? ?"
)
_TAGS_OF_ALL = (r" *(\d+):(?: |$)", r"\[(\d+)\](?: |$)")  # srun -l and mpiexec -l: on every line
_OF_SLURM = ("srun: ", "slurmstepd: ")  # but on its own


class Line(NamedTuple):
    """One line; `rank` where a launcher tagged it."""

    number: int
    text: str
    rank: int | None = None


@dataclass(frozen=True)
class Log:
    """One file. `ended`: its last line has a line end."""

    name: str
    lines: Sequence[Line]
    ended: bool = True

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)


def decode(data: bytes, name: str = "log") -> Log:
    """Part a file into lines without tags; of a progress bar's states, the last one stands."""
    text = _COLOUR.sub("", data.decode("utf-8-sig", errors="replace"))
    lines = []
    for line in text.removesuffix("\n").split("\n") if text else []:
        states = [state for state in re.split(r"[\r\b]+", line) if state.strip()]
        lines.append(states[-1] if states else "")  # what a terminal goes on to show
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
    return Log(name, tagged, text.endswith("\n") or not text)
