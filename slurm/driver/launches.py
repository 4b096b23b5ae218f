"""What a job script starts: the runs on its standard input, as launches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench.config import UsageError

_COUNT = re.compile("[1-9][0-9]{0,8}")
_PAIR = re.compile(r"([0-9]{1,9})\+([0-9]{1,9})")


class RunLine(NamedTuple):
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
    def position(self) -> str:
        """In its block, by which the head of a launch names it."""
        return self._option("--position", "")

    def _option(self, name: str, otherwise: str) -> str:
        return dict(zip(self.options, self.options[1:], strict=False)).get(name, otherwise)


def point_of(run_id: str) -> str:
    """What a run measures in every block: its id without block and position."""
    return re.sub("^b[0-9]+-[0-9]+-", "", run_id)


class LaunchLines(NamedTuple):
    """Runs that are started together and take turns; `apart`: why the one run here does not.

    `pairs`: positions of runs that are compared, the most important comparison first.
    """

    lines: list[RunLine]
    apart: str = ""
    pairs: tuple[tuple[str, str], ...] = ()


def read_launches(text: str) -> list[LaunchLines]:
    """What a script starts; comments and empty lines count for nothing.

    `turns N A+B ...` begins a launch of the runs below it, N at most; those at positions A and B
    are compared. Below `apart N REASON`, and where neither stands, each run is a launch of its own.
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
            case ["turns", count, *rest] if _COUNT.fullmatch(count) and all(
                pairs := [_PAIR.fullmatch(word) for word in rest]
            ):
                head, left, reason = "turns", int(count), ""
                launches.append(LaunchLines([], "", tuple((m[1], m[2]) for m in pairs if m)))
                continue
            case ["apart", count, *rest] if _COUNT.fullmatch(count):
                head, left, reason = "apart", int(count), " ".join(rest)
                continue
            case ["run", name, ranks, *options] if _COUNT.fullmatch(ranks):
                run = RunLine(name, int(ranks), options)
            case _:
                form = "`run ID RANKS OPTIONS`, `turns N A+B ...` or `apart N REASON`"
                raise UsageError(f"run line {number} is not {form}: {line}")
        if left and head == "turns":
            launches[-1].lines.append(run)
        else:
            launches.append(LaunchLines([run], reason if left else ""))
        left = max(0, left - 1)
    return [launch for launch in launches if launch.lines]


def in_parts(
    launch: LaunchLines, most_bytes: float, bytes_of: Callable[[RunLine], int]
) -> list[list[RunLine]]:
    """Runs of a launch as what can live at once: at most so many bytes, or a run alone.

    Of runs that are compared, both stand in one part where they fit, those of the first pair before
    those of the next. Parts, and runs of a part, keep the launch's order, in which sides are first
    in turn.
    """
    lines, parts = launch.lines, list[list[RunLine]]()

    def fit(runs: Sequence[RunLine]) -> bool:
        return sum(map(bytes_of, runs)) <= most_bytes

    for unit in [*_pairs(launch), *([line] for line in lines)]:
        placed = [part for part in parts if any(line in part for line in unit)]
        left = [line for line in unit if not any(line in part for part in placed)]
        room = [part for part in placed or parts if fit([*part, *left])]
        if left and room:
            room[0] += left
        elif not placed and (fit(unit) or len(unit) == 1):
            parts.append(unit)
    parts = [sorted(part, key=lines.index) for part in parts]
    return sorted(parts, key=lambda part: lines.index(part[0]))


def _pairs(launch: LaunchLines) -> Iterator[list[RunLine]]:
    """Both runs of each pair; none of a pair whose run was deleted from the script."""
    line_at = {line.position: line for line in launch.lines}
    for pair in launch.pairs:
        if line_at.keys() >= {*pair}:
            yield [line_at[position] for position in pair]
