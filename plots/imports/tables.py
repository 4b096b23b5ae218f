"""A CSV with a heading: quantities, and any of run, rank, epoch, step, world_size, backend."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from bench.config import UsageError
from plots.imports.observation import (
    RANK_RATE,
    RATE,
    Format,
    ImportOptions,
    Reading,
    Row,
    cut_off,
    divide,
    in_seconds,
    table,
)
from plots.imports.text import Log


def _read(log: Log, options: ImportOptions) -> Reading:
    delimiter = "\t" if log.lines and "\t" in log.lines[0].text else ","
    try:
        parted = csv.reader(log.text.splitlines(), delimiter=delimiter)
        head, *lines = [[cell.strip() for cell in line] for line in parted if line] or [[]]
    except csv.Error as error:
        raise UsageError(f"it is no CSV: {error}") from None
    if twice := sorted({name for name in head if head.count(name) > 1}):
        raise UsageError(f"column {', '.join(twice)} is there twice; rename one, or take it out")
    if "rank" in head:
        head = [RANK_RATE if name == RATE else name for name in head]
    return Reading(table(_rows(head, lines)), cut_off(log, len(log.lines)))


def _rows(head: list[str], lines: list[list[str]]) -> Iterator[Row]:
    """Yield every number that is there. A column without a name counts rows, as pandas writes it.

    Raises UsageError for a row of another length, and a value that is no number.
    """
    for number, line in enumerate(lines, 2):
        if len(line) != len(head):
            raise UsageError(f"row {number} has {len(line)} values for {len(head)} columns")
        texts = {n: text for n, text in zip(head, line, strict=True) if n and text}
        try:
            places, values = divide(texts)
        except UsageError as error:
            raise UsageError(f"row {number}: {error}") from None
        for name, value in values.items():
            quantity, value = in_seconds(name, value)
            yield {"quantity": quantity, "value": value, **places}


FORMAT = Format(
    read=_read,
    written_by="anybody",
    notes=("images_per_s are of all ranks, unless there is a column rank",),
)
