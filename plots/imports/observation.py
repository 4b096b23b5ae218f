"""What a foreign log states, as a long table: numbers as they stand there, and of what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench.config import UsageError
from plots.imports.text import Line, Log

# what logs write numbers with: 12, 12.5, .5, 1e-3, nan, inf
NUMBER = r"[-+]?(?:nan|inf|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
WHOLE = ("run", "rank", "step", "world_size", "batch_per_rank", "global_batch")
PLACES = (*WHOLE[:2], "epoch", *WHOLE[2:])
WORDS = ("backend", "model")  # places that are no numbers
COLUMNS = ("quantity", "value", *PLACES, *WORDS)
RATE = "images_per_s"  # of all ranks
RANK_RATE = "rank_images_per_s"  # of one: only the sum over all ranks is a point
_UNITS = {"_ms": 1e-3, "_us": 1e-6}  # quantities in them become quantities in seconds
_BEGUN = re.compile(r"(?:\d\.?|(?:^|[\s=:(])-)$")  # a number has begun
_CONTINUED = re.compile(r"\d|\.\d|[eE][-+]?\d|,\d{3}(?!\d)")  # a number goes on
_DECIMAL_COMMA = re.compile(r",\d+(?![\d.,])")  # as some locales write 3215,4

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What the files do not say, and the user does; None where the files must."""

    backend: str | None = None
    world_size: int | None = None
    batch_per_rank: int | None = None
    global_batch: int | None = None
    source: str = ""
    files: str | None = None  # what several files of one size are: 'runs' or 'ranks'
    target: float | None = None  # of trainings: percent
    patterns: Sequence[str] = ()  # of the format `pattern`
    marker: str | None = None
    skip: int = 0  # lines at the beginning of each run


@dataclass(frozen=True)
class Reading:
    """A row for each number, with the columns `COLUMNS`, and what must be told of them.

    A quantity is named with its unit; a place that the file does not tell is missing.
    """

    values: pd.DataFrame
    warnings: Sequence[str] = ()


Reader = Callable[[Log, ImportOptions], Reading]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of file. `read` raises UsageError where the text contradicts itself."""

    read: Reader
    written_by: str
    a_file_is_a_run: bool = False  # else several files of one size may be ranks as well
    one_speaks: bool = False  # one rank writes, and its rate times the world size is that of all
    last_counts: str = ""  # quantities (a pattern) that are of all steps before: the last counts
    notes: Sequence[str] = ()  # what a reader must know of the numbers


def matched(*patterns: str, marker: str) -> Reader:
    """Make the reader of a format whose lines hold `marker`."""
    compiled, mark = [re.compile(pattern) for pattern in patterns], re.compile(marker)
    return lambda log, options: read_lines(log, compiled, mark)


def read_lines(
    log: Log, patterns: Sequence[re.Pattern[str]], marker: re.Pattern[str] | None
) -> Reading:
    """Read all matches: a group's name is a quantity or a place.

    The group `name`, or else the file's name, names the quantity of the group `value`. A pattern
    that names only places, such as the epoch, speaks for the lines below it. A line that holds
    `marker` more often than a pattern matches is counted as not understood.
    """
    rows: list[Row] = []
    marked, last, parts = 0, 0, 0
    lost: list[Line] = []
    below: dict[int | None, dict[str, str]] = {}  # by the tag of a rank
    for line in log.lines:
        places = below.setdefault(line.rank, {})
        everywhere = [m for p in patterns for m in p.finditer(line.text)]
        matches = [m for m in everywhere if not _cuts_a_number(m)]
        parts += len(everywhere) - len(matches)
        for match in matches:
            groups = {name: text for name, text in match.groupdict().items() if text is not None}
            name = groups.pop("name", log.name)
            if "value" in groups:
                groups[_as_quantity(name)] = groups.pop("value")
            if set(groups) <= {*PLACES, *WORDS}:
                places.update(groups)
                continue
            rows += _of_groups({**places, **groups}, line)
            last = line.number
        occurrences = len(marker.findall(line.text)) if marker else 1
        marked += occurrences > 0
        if occurrences > len(matches):
            lost.append(line)
    warnings = [
        f"{marked - len(lost)} of {marked} lines match; --marker TEXT counts those with TEXT that "
        "do not"
    ]
    if marker:
        first = [f"; the first is line {x.number}: {x.text.strip()[:60]!r}" for x in lost[:1]]
        lines = f"{len(lost)} of {marked} lines with the format's marker were not understood"
        warnings = ["".join([lines, *first])] if marked else []
    if parts:
        warnings.append(f"{parts} matches take a part of a number alone, and are not read")
    return Reading(table(rows), [*warnings, *cut_off(log, last)])


def _as_quantity(name: str) -> str:
    """Turn 'Training loss' of a console and 'Training-loss.series.txt' into 'train_loss'."""
    name = re.sub(r"(?:\.series)?\.txt$", "", name.strip())
    return re.sub(r"\W+", "_", name.lower()).replace("training_", "train_", 1)


def divide(texts: Mapping[str, str]) -> tuple[Row, Row]:
    """Divide texts by name into places and values. Raises UsageError for what is no number."""
    places: Row = {}
    values: Row = {}
    for name, text in texts.items():
        if name in WORDS:
            places[name] = text
        elif name in PLACES:
            places[name] = as_number(text, name, whole=name in WHOLE)
        else:
            values[name] = as_number(text, name)
    return places, values


def _of_groups(groups: Mapping[str, str], line: Line) -> Iterator[Row]:
    """Yield a row for each quantity of one match; a lap is as many steps as it says."""
    places, values = divide(groups)
    places = {**({} if line.rank is None else {"rank": line.rank}), **places}
    if lap_steps := values.pop("lap_steps", None):
        values["step_seconds"] = values.pop("lap_seconds", float("nan")) / lap_steps
    if RATE in values and "rank" in groups:
        values[RANK_RATE] = values.pop(RATE)
    for name, value in values.items():
        quantity, number = in_seconds(name, value)
        yield {"quantity": quantity, "value": number, **places}


def as_number(text: str, name: str, whole: bool = False) -> float:
    """Read a text as a number. Raises UsageError if it is none, or a place that is not whole."""
    try:
        value = float(text)
    except ValueError:
        value = None
    if value is None or (whole and value % 1 != 0):
        kind = "whole number" if whole else "number"
        raise UsageError(f"{name}={text[:60]!r} is no {kind}; mend the line, or take it out")
    return value


def _cuts_a_number(match: re.Match[str]) -> bool:
    """Check whether a group takes a part of a longer number, such as 0 of 0.396, or 5 of -5."""
    for name, group in match.groupdict().items():
        if group and name not in WORDS:
            start, end = match.span(name)
            begun = group[0].isdigit() and _BEGUN.search(match.string[max(0, start - 2) : start])
            if begun or _CONTINUED.match(match.string, end):
                return True
            listed = name in PLACES or match.string.startswith(",", max(0, start - 1))
            if not listed and group.isdigit() and _DECIMAL_COMMA.match(match.string, end):
                return True
    return False


def cut_off(log: Log, last: int) -> list[str]:
    """Warn where a number was read in a last line that has no line end."""
    if log.ended or not log.lines or last != log.lines[-1].number:
        return []
    return ["its last line has no line end: a number in it may be cut off"]


def table(rows: Iterable[Row]) -> pd.DataFrame:
    """Make a table of single rows, each with quantity, value and places."""
    values = pd.DataFrame(list(rows), columns=list(COLUMNS))
    return values.astype(dict.fromkeys(("value", *PLACES), float))


def in_seconds(quantity: str, value: float) -> tuple[str, float]:
    """Convert 12.5 'step_ms' or 80 'steps_per_s' to ('step_seconds', 0.0125); keep all others."""
    if quantity == "steps_per_s":  # its mean over lines would not be that of their seconds
        return "step_seconds", 1 / value if value else float("inf")
    for ending, unit in _UNITS.items():
        if quantity.endswith(ending):
            return quantity.removesuffix(ending) + "_seconds", value * unit
    return quantity, value
