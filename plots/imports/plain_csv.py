"""A CSV with a heading: quantities, and any of run, rank, epoch, step, world_size, backend."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import NUMBER, PLACES, WORDS, Format, long

_WHOLE, _ANY = re.compile(r"\d+"), re.compile(NUMBER, re.IGNORECASE)


def rows(text: str, wanted: Sequence[str] = ()) -> pd.DataFrame:
    """Every row as texts. Raises UsageError for a column that is missing or there twice, a row of
    another length, and what is no CSV.
    """
    try:
        lines = [line for line in csv.reader(text.splitlines()) if line]
    except csv.Error as error:
        raise UsageError(f"it is no CSV: {error}") from None
    head = [name.strip() for name in lines[0]] if lines else []
    if missing := [name for name in wanted if name not in head]:
        raise UsageError(f"no column {', '.join(missing)}; there are {', '.join(head) or 'none'}")
    if twice := sorted({name for name in head if head.count(name) > 1}):
        raise UsageError(f"column {', '.join(twice)} is there twice; rename one, or take it out")
    for number, line in enumerate(lines, 1):
        if len(line) != len(head):
            raise UsageError(f"row {number} has {len(line)} values for {len(head)} columns")
    return pd.DataFrame([[cell.strip() for cell in line] for line in lines[1:]], columns=head)


def numbers(texts: pd.DataFrame) -> pd.DataFrame:
    """A long table of them. Raises UsageError where a value is no number."""
    for name in texts.columns.difference(list(WORDS)):
        form, kind = (_WHOLE, "whole number") if name in PLACES else (_ANY, "number")
        for row, value in enumerate(texts[name], 2):
            if value and not form.fullmatch(value):
                raise UsageError(f"row {row}: {name}={value!r} is no {kind}")
    return long(texts)


def _read(text: str) -> pd.DataFrame:
    return numbers(rows(text))


FORMAT = Format(
    read=_read,
    written_by="anybody",
    of_a_rank=False,
    notes=("images_per_s are of all ranks, unless there is a column rank",),
)
