"""What a job script starts: the runs on its standard input, as launches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from bench.config import UsageError

_COUNT = re.compile("[1-9][0-9]{0,8}")


class Line(NamedTuple):
    """`run ID RANKS OPTIONS` of a job script."""

    id: str
    ranks: int
    options: list[str]

    @property
    def backend(self) -> str:
        return self._option("--backend", "")

    @property
    def block(self) -> int:
        index = self._option("--block", "")
        return int(index) if index.isdecimal() else 0  # whatever else it is, the run refuses it

    @property
    def variant(self) -> tuple[str, str]:
        """What it has of its own beside the plain run of its cell."""
        return self._option("--variant", ""), self._option("--arm", "")

    def _option(self, name: str, otherwise: str) -> str:
        return dict(zip(self.options, self.options[1:], strict=False)).get(name, otherwise)


class Launch(NamedTuple):
    """Runs that are started together and take turns; `apart`: why the one run here does not."""

    lines: list[Line]
    apart: str = ""


def read_launches(text: str) -> list[Launch]:
    """What a script starts; comments and empty lines count for nothing.

    `turns N` begins a launch of the runs below it, N at most; below `apart N REASON`, and where
    neither stands, each run is a launch of its own.
    """
    launches: list[Launch] = []
    head, left, reason = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UsageError(f"run line {number}: {error}; correct it: {line}") from None
        match words:
            case []:
                continue
            case ["turns" | "apart", count, *rest] if _COUNT.fullmatch(count):
                head, left, reason = words[0], int(count), " ".join(rest)
                if head == "turns":
                    launches.append(Launch([]))
                continue
            case ["run", name, ranks, *options] if _COUNT.fullmatch(ranks):
                run = Line(name, int(ranks), options)
            case _:
                form = "`run ID RANKS OPTIONS`, `turns N` or `apart N REASON`"
                raise UsageError(f"run line {number} is not {form}: {line}")
        if left and head == "turns":
            launches[-1].lines.append(run)
        else:
            launches.append(Launch([run], reason if left else ""))
        left = max(0, left - 1)
    return [launch for launch in launches if launch.lines]


def in_parts(
    lines: Sequence[Line], most: float, ranks_of: Callable[[Line], int]
) -> list[list[Line]]:
    """Runs of a launch as what can live at once: at most so many ranks, or a run alone.

    Runs of one variant and arm stand together where they fit, as both sides of most comparisons do,
    and each part keeps the launch's order, in which sides are first in turn.
    """

    def fit(runs: Sequence[Line]) -> bool:
        return sum(map(ranks_of, runs)) <= most

    parts: list[list[Line]] = []
    variant = attrgetter("variant")
    for _, group in groupby(sorted(lines, key=variant), key=variant):
        mates = [*group]
        for unit in [mates] if fit(mates) else [[line] for line in mates]:
            if parts and fit([*parts[-1], *unit]):
                parts[-1] += unit
            else:
                parts.append(unit)
    return [sorted(part, key=lines.index) for part in parts]
