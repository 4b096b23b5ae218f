"""What a job script starts: the runs on its standard input, as launches."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from bench.config import UsageError

_COUNT = re.compile("[1-9][0-9]{0,8}")


class RunLine(NamedTuple):
    """`run ID RANKS OPTIONS` of a job script."""

    id: str
    ranks: int
    options: list[str]

    @property
    def block(self) -> int:
        index = dict(zip(self.options, self.options[1:], strict=False)).get("--block", "")
        return int(index) if index.isdecimal() else 0  # whatever else it is, the run refuses it


class LaunchLines(NamedTuple):
    """Runs that are started together and take turns; `apart`: why the one run here does not."""

    lines: list[RunLine]
    apart: str = ""


def read_launches(text: str) -> list[LaunchLines]:
    """Read what a script starts; comments and empty lines count for nothing.

    `turns N` begins a launch of the runs below it, N at most. Below `apart N REASON`, and where
    neither stands, each run is a launch of its own.
    """
    launches: list[LaunchLines] = []
    head, left, reason = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UsageError(f"run line {number}: {error}; correct it: {line}") from None
        match words:
            case []:
                continue
            case ["turns", count] if _COUNT.fullmatch(count):
                head, left, reason = "turns", int(count), ""
                launches.append(LaunchLines([]))
                continue
            case ["apart", count, *rest] if _COUNT.fullmatch(count):
                head, left, reason = "apart", int(count), " ".join(rest)
                continue
            case ["run", name, ranks, *options] if _COUNT.fullmatch(ranks):
                run = RunLine(name, int(ranks), options)
            case _:
                form = "`run ID RANKS OPTIONS`, `turns N` or `apart N REASON`"
                raise UsageError(f"run line {number} is not {form}: {line}")
        if left and head == "turns":
            launches[-1].lines.append(run)
        else:
            launches.append(LaunchLines([run], reason if left else ""))
        left = max(0, left - 1)
    return [launch for launch in launches if launch.lines]
