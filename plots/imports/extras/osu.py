"""OSU micro-benchmarks: a size a row, latency (of ranks: mean, least, largest) or bandwidth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bench.config import UsageError
from plots.imports.observation import (
    Format,
    ImportOptions,
    Reading,
    Row,
    as_number,
    cut_off,
    table,
    understood,
)
from plots.imports.text import Line, Log

_TEST = re.compile(r"(.*?)#\s*(?:OSU|OMB)(?:[ -]Py(?:thon)?)?\s+(\S+)\s+(.*?)\s*Test\b")
_HEAD = re.compile(r"#\s*Size\s+(.*)")
_COLUMN = re.compile(
    r"([A-Za-z][\w. /-]*?)\s*\((us|MB/s|%)\)|\b(MB/s|Messages/s|Iterations|Validation)"
)
_KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce_scatter": "reduce_scatter",
}
_OF_RANKS = {
    "latency": "",
    "avg_latency": "",
    "min_latency": "_fastest_rank",
    "max_latency": "_slowest_rank",
    "overall": "_overall",
}
_OF_TWO = ("", "bandwidth", "bi_directional_bandwidth")  # between two ranks
_UNITS = {"us": ("seconds", 1e-6), "MB/s": ("bytes_per_s", 1e6), "%": ("percent", 1.0)}


@dataclass
class _Test:
    test: str
    library: str
    before: re.Pattern[str]  # what stands before each line, such as a date, in its shape
    columns: tuple[tuple[str, str, float], ...] = ()  # name, ending of the quantity, unit


def _read(log: Log, options: ImportOptions) -> Reading:
    rows: list[Row] = []
    marked, lost, last = 0, [], 0
    now: _Test | None = None
    for line in log.lines:
        if test := _TEST.match(line.text):
            shape = re.compile(re.sub(r"\d+", r"\\d+", re.escape(test[1])))
            now = _Test(_slug(re.sub(r"\s*Latency$", "", test[3])), test[2], shape)
        elif now and (head := _HEAD.search(line.text)):
            now.columns = tuple(map(_column, _COLUMN.finditer(head[1])))
        elif now and now.columns and (words := _words(line, now)) and words[0].isdigit():
            marked += 1
            of_line = list(_of(words, now, line, options))
            rows += of_line
            if of_line:
                last = line.number
            else:
                lost.append(line)
    return Reading(table(rows), [*understood(marked, lost), *cut_off(log, last)])


def _slug(words: str) -> str:
    return re.sub(r"\W+", "_", words.strip().lower()).strip("_")


def _column(match: re.Match[str]) -> tuple[str, str, float]:
    if match[3]:
        alone = {"MB/s": ("bandwidth", *_UNITS["MB/s"]), "Messages/s": ("messages_per_s", "", 1.0)}
        return alone.get(match[3], (match[3], "", 1.0))
    return (_slug(match[1]), *_UNITS[match[2]])


def _words(line: Line, now: _Test) -> list[str]:
    shape = now.before.match(line.text)
    return line.text[shape.end() if shape else 0 :].split()


def _of(words: list[str], now: _Test, line: Line, options: ImportOptions) -> Iterator[Row]:
    """Nothing where a row has other columns than its heading."""
    if len(words) != 1 + len(now.columns):
        return
    kind = _KINDS.get(now.test, now.test)
    world = 2 if now.test in _OF_TWO else options.world_size
    if world is None:
        raise UsageError("no line of it tells the world size; use --world-size")
    numbers: dict[str, float] = {}
    for word, (name, ending, unit) in zip(words[1:], now.columns, strict=True):
        if name == "Validation":
            if word.lower() not in ("pass", "passed", "-"):
                raise UsageError(f"line {line.number}: its validation says {word!r}")
        elif name != "Iterations":
            of_ranks = "" if kind.endswith(name) else _OF_RANKS.get(name, f"_{name}")
            quantity = f"{kind or 'point_to_point'}{of_ranks}{ending and '_'}{ending}"
            numbers[quantity] = unit * as_number(word, name)
    _require_order(numbers, line)
    size = int(words[0]) * (world if kind == "all_gather" else 1)
    place = {"bytes": size, "world_size": world, "model": now.library}
    for quantity, value in numbers.items():
        yield {"quantity": quantity, "value": value, **place}


def _require_order(numbers: dict[str, float], line: Line) -> None:
    """Raise UsageError where a mean is not between the least and the largest."""
    for quantity, value in numbers.items():
        kind = quantity.removesuffix("_seconds")
        least = numbers.get(f"{kind}_fastest_rank_seconds", value)
        most = numbers.get(f"{kind}_slowest_rank_seconds", value)
        if not least <= value <= most:
            wrong = f"a mean of {value:g} s, from {least:g} to {most:g} s, is none"
            raise UsageError(f"line {line.number}: {wrong}; mend the line")


FORMAT = Format(
    read=_read,
    written_by="OSU micro-benchmarks",
    a_file_is_a_run=True,
    notes=(
        "seconds without more are means over ranks; the slowest rank's are of its own mean",
        "bytes are of the whole: OSU writes an all-gather's bytes of one rank",
    ),
)
