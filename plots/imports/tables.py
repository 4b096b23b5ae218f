"""A CSV with a heading: quantities, and any of run, rank, epoch, step, world_size, backend."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import (
    COLUMNS,
    PLACES,
    RANK_RATE,
    RATE,
    WHOLE,
    WORDS,
    Format,
    ImportOptions,
    Reading,
    as_number,
    cut_off,
    in_seconds,
)
from plots.imports.text import Log

_OURS = ("source", "file", "reducer")  # words of the tables that an import writes
_LONG = {"quantity", "value"}  # columns of a table with one number a row


def rows(text: str, wanted: Sequence[str] = ()) -> pd.DataFrame:
    """Every row as texts. Raises UsageError for a column that is missing or there twice, a row of
    another length, and what is no CSV.
    """
    first, _, _ = text.partition("\n")
    try:
        parted = csv.reader(text.splitlines(), delimiter="\t" if "\t" in first else ",")
        lines = [[cell.strip() for cell in line] for line in parted if line]
    except csv.Error as error:
        raise UsageError(f"it is no CSV: {error}") from None
    head = lines[0] if lines else []
    if missing := [name for name in wanted if name not in head]:
        raise UsageError(f"no column {', '.join(missing)}; there are {', '.join(head) or 'none'}")
    for number, line in enumerate(lines, 1):
        if len(line) != len(head):
            raise UsageError(f"row {number} has {len(line)} values for {len(head)} columns")
    if head and head[0] in ("", "Unnamed: 0"):  # the row numbers that pandas writes
        if [line[0] for line in lines[1:]] != [str(i) for i in range(len(lines) - 1)]:
            raise UsageError("its first column has no name and is no count of rows; name it")
        lines, head = [line[1:] for line in lines], head[1:]
    if twice := sorted({name for name in head if head.count(name) > 1}):
        raise UsageError(f"column {', '.join(twice)} is there twice; rename one, or take it out")
    return pd.DataFrame(lines[1:], columns=head)


def numbers(texts: pd.DataFrame) -> pd.DataFrame:
    """A long table of them. Raises UsageError where a value is no number."""
    if set(texts) >= _LONG:
        return _frame(_long(texts))
    if "rank" in texts:
        texts = texts.rename(columns={RATE: RANK_RATE})
    return _frame(_wide(texts))


def _wide(texts: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(texts.to_dict("records"), 2):
        places = _places(row, number)
        for name, text in row.items():
            if text and name not in (*PLACES, *WORDS, *_OURS, "n"):
                quantity, value = in_seconds(str(name), _number(text, str(name), number))
                yield {"quantity": quantity, "value": value, **places}


def _long(texts: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A table of points or of values, as an import writes it; an empty value is nan."""
    known = {*_LONG, *PLACES, *WORDS, *_OURS, "n"}
    if other := [name for name in texts if name not in known]:
        raise UsageError(f"column {', '.join(map(str, other))} is none of {', '.join(known)}")
    for number, row in enumerate(texts.to_dict("records"), 2):
        if not row["quantity"]:
            raise UsageError(f"row {number} names no quantity")
        value = _number(row["value"] or "nan", "value", number)
        quantity, value = in_seconds(row["quantity"], value)
        yield {"quantity": quantity, "value": value, **_places(row, number)}


def _places(row: dict[Any, str], number: int) -> dict[str, Any]:
    places: dict[str, Any] = {name: row[name] for name in (*WORDS, *_OURS) if row.get(name)}
    for name in (*PLACES, "n"):
        if text := row.get(name):
            places[name] = _number(text, name, number, whole=name in (*WHOLE, "n"))
    return places


def _number(text: str, name: str, row: int, whole: bool = False) -> float:
    try:
        return as_number(text, name, whole)
    except UsageError as error:
        raise UsageError(f"row {row}: {error}") from None


def _frame(records: Iterator[dict[str, Any]]) -> pd.DataFrame:
    values = pd.DataFrame(list(records)).reindex(columns=[*COLUMNS, *_OURS, "n"])
    return values.astype(dict.fromkeys(("value", *PLACES, "n"), float))


def _read(log: Log, options: ImportOptions) -> Reading:
    return Reading(numbers(rows(log.text)), cut_off(log, len(log.lines)))


FORMAT = Format(
    read=_read,
    written_by="anybody",
    notes=("images_per_s are of all ranks, unless there is a column rank",),
)
