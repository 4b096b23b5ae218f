"""Numbers read from other tools' logs, each in a row with its run, rank, epoch, step and size."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bench.config import UsageError

WHOLE = ("run", "rank", "step", "world_size", "batch_per_rank", "global_batch")
PLACES = (*WHOLE[:2], "epoch", *WHOLE[2:])
WORDS = ("backend", "model")  # places that are no numbers
RATE = "images_per_s"  # of all ranks
RANK_RATE = "rank_images_per_s"  # of one: only the sum over all ranks is a point
_NUMBER = r"[-+]?(?:nan|inf|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_BEGUN = re.compile(r"\d\.?$")  # a number has begun
_CONTINUED = re.compile(r"\d|\.\d|[eE][-+]?\d|,\d{3}(?!\d)")  # a number goes on
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Open MPI, PRRTE, horovodrun: [1,0]<stdout>: ; torchrun and its errors: [default0]: and [rank0]:
_TAG = (
    r"[^<\n]{0,60}?\[(?:[\w.-]+@)?(?:\d+,)?(\d+)\](?:\[[^\]\s]*\])?<std(?:out|err|diag)>:? ?"
    r"|\[(?:default|rank)(\d+)\]:? ?"
)
_UNITS = {  # how a name ends, how it ends here, and what a number is times
    "_ms": ("_seconds", 1e-3),
    "_us": ("_seconds", 1e-6),
    "_hours": ("_seconds", 3600),
    "_percent": ("", 0.01),
}
_TAGS_OF_ALL = (r" *(\d+):(?: |$)", r"\[(\d+)\](?: |$)")  # srun -l and mpiexec -l: on every line

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of file, read by regular expressions, or as a table if it has none."""

    written_by: str
    patterns: Sequence[str] = ()  # a group's name is a quantity or a place
    marker: str = ""  # a regular expression: a line that holds it more often than it matches is bad
    one_speaks: bool = False  # one rank writes, and its rate times the world size is that of all
    trainings: bool = False  # numbers are of all epochs so far; without epochs, a line is a run
    notes: Sequence[str] = ()  # what a reader must know of the numbers


_TABLES = Path(__file__).with_name("formats.toml").read_text().replace("<N>", _NUMBER)
FORMATS = {name: Format(**keys) for name, keys in tomllib.loads(_TABLES).items()}


class Line(NamedTuple):
    """One line without colours and launcher's tag; `rank` is from the tag, or None without it."""

    number: int
    text: str
    rank: int | None


def read(form: Format, name: str, data: bytes) -> tuple[pd.DataFrame, list[str], set[float]]:
    """Read a file; return its numbers, warnings, and the ranks that a launcher put before lines.

    Columns are quantity (with its unit; times are in seconds), value, PLACES and WORDS, which are
    nan if unknown. If a match has a `value` but no `name`, the file's `name` is the quantity.
    Raises UsageError for a text that is no number, and for a table with a wrong row or heading.
    """
    lines = _lines(data)
    rows, warnings = _of_lines(form, name, lines) if form.patterns else (_of_table(lines), [])
    values = pd.DataFrame(rows, columns=["quantity", "value", *PLACES, *WORDS])
    values = values.astype(dict.fromkeys(("value", *PLACES), float))
    if form.trainings and values["epoch"].isna().all():
        values["run"] = values.groupby("quantity").cumcount().astype(float)
    values = values.astype(dict.fromkeys(WORDS, object))
    return values, warnings, {float(x.rank) for x in lines if x.rank is not None}


def _lines(data: bytes) -> list[Line]:
    """Split a file into lines without launchers' tags. A progress bar keeps its last state only."""
    text = _COLOUR.sub("", data.decode("utf-8-sig", errors="replace"))
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        states = [state for state in re.split(r"[\r\b]+", line) if state.strip()]
        lines.append(states[-1] if states else "")
    written = [x for x in lines if x.strip() and not x.startswith(("srun: ", "slurmstepd: "))]
    of_all = [p for p in _TAGS_OF_ALL if written and all(re.match(p, x) for x in written)]
    tagged = []
    for number, line in enumerate(lines, 1):
        tag = re.match([*of_all, _TAG][0], line)
        rank = int(next(filter(None, tag.groups()))) if tag else None
        tagged.append(Line(number, line[tag.end() :] if tag else line, rank))
    return tagged


def _of_lines(form: Format, name: str, lines: Sequence[Line]) -> tuple[list[Row], list[str]]:
    """Return rows and warnings. Places matched alone, such as an epoch, hold for later rows."""
    patterns, marker = [re.compile(p) for p in form.patterns], re.compile(form.marker)
    rows: list[Row] = []
    marked, parts = 0, 0
    lost: list[Line] = []
    below: dict[int | None, dict[str, str]] = {}  # by the tag of a rank
    for line in lines:
        everywhere = [m for p in patterns for m in p.finditer(line.text)]
        matches = [m for m in everywhere if not _cuts_a_number(m)]
        parts += len(everywhere) - len(matches)
        for match in matches:
            groups = {k: text for k, text in match.groupdict().items() if text is not None}
            if "value" in groups:
                groups[_as_quantity(groups.pop("name", name))] = groups.pop("value")
            places = below.setdefault(line.rank, {})
            if {*groups} <= {*PLACES, *WORDS}:
                places.update(groups)
            else:
                rows += _rows({**places, **groups}, line)
        occurrences = len(marker.findall(line.text)) if form.marker else 1
        marked += occurrences > 0
        lost += [line] if occurrences > len(matches) else []
    warnings = [f"{parts} matches take a part of a number alone, and are not read"] if parts else []
    if not form.marker:
        warnings.append(f"{marked - len(lost)} of {marked} lines match")
    elif lost:
        text = f"{len(lost)} of {marked} lines with the format's marker were not understood"
        line = lost[0]
        warnings.append(f"{text}; the first is line {line.number}: {line.text.strip()[:60]!r}")
    return rows, warnings


def _of_table(lines: Iterable[Line]) -> list[Row]:
    """Read a table below its heading, without unnamed columns, such as pandas' row number."""
    lines = [line for line in lines if line.text.strip()]
    if not lines:
        return []
    delimiter = next((c for c in "\t, " if c in lines[0].text.strip()), ",")
    texts = [line.text.strip(" ") for line in lines]
    head, *cells = (
        next(csv.reader([x], delimiter=delimiter, skipinitialspace=True)) for x in texts
    )
    names = [name.strip() for name in head]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"column {', '.join(twice)} is there twice; rename one, or take it out")
    rows: list[Row] = []
    for line, row in zip(lines[1:], cells, strict=True):
        if len(row) != len(names):
            wrong = f"line {line.number} has {len(row)} values for {len(names)} columns"
            raise UsageError(f"{wrong}; mend it, or take it out")
        texts_by_name = {n: x.strip() for n, x in zip(names, row, strict=True) if n and x.strip()}
        rows += _rows(texts_by_name, line)
    return rows


def _rows(texts: Mapping[str, str], line: Line) -> Iterator[Row]:
    """Yield a row for each quantity of a match or table row. Raises UsageError for a bad number."""
    places: Row = {} if line.rank is None else {"rank": line.rank}
    values: dict[str, float] = {}
    for name, text in texts.items():
        if name in WORDS:
            places[name] = text
            continue
        try:
            value = float(text)
        except ValueError:
            value = None
        if value is None or (name in WHOLE and value % 1 != 0):
            kind = "whole number" if name in WHOLE else "number"
            wrong = f"line {line.number}: {name}={text[:60]!r} is no {kind}"
            raise UsageError(f"{wrong}; mend the line, or take it out")
        (places if name in PLACES else values)[name] = value
    if lap_steps := values.pop("lap_steps", None):  # a lap is as many steps as it says
        values["step_seconds"] = values.pop("lap_seconds") / lap_steps
    if RATE in values and "rank" in texts:
        values[RANK_RATE] = values.pop(RATE)
    if (rate := values.pop("steps_per_s", None)) is not None:
        values["step_seconds"] = 1 / rate if rate else float("inf")
    for name, value in values.items():
        end = next((end for end in _UNITS if name.endswith(end)), "")
        unit, factor = _UNITS.get(end, ("", 1))
        yield {"quantity": name.removesuffix(end) + unit, "value": value * factor, **places}


def _as_quantity(name: str) -> str:
    """Turn 'Training loss' of a console and 'Training-loss.series.txt' into 'train_loss'."""
    name = re.sub(r"(?:\.series)?\.txt$", "", name.strip())
    return re.sub(r"\W+", "_", name.lower()).replace("training_", "train_", 1)


def _cuts_a_number(match: re.Match[str]) -> bool:
    """Return whether a group takes only part of a longer number, such as 0 of 0.396."""
    for name, group in match.groupdict().items():
        if group and name not in WORDS:
            start, end = match.span(name)
            begun = group[0].isdigit() and _BEGUN.search(match.string[max(0, start - 2) : start])
            if begun or _CONTINUED.match(match.string, end):
                return True
    return False
