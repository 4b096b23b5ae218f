"""Foreign logs written as tables of points, and what is told of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bench.config import UsageError
from bench.study.disk import write_whole
from plots.imports import find
from plots.imports.observation import Format, ImportOptions
from plots.imports.points import Imported, by_epoch, read
from plots.report.format import count, number, table


def bring_in(
    form: str,
    files: Sequence[Path],
    options: ImportOptions,
    out: Path,
    *,
    values: bool,
    epochs: bool,
    force: bool,
) -> Iterator[str]:
    """Import files of one format: NAME.csv with points; `values`: NAME-values.csv, every number.

    `epochs`: a Markdown table of the epochs instead of what was written.
    """
    reader = find(form)
    name = "-".join(dict.fromkeys(path.stem for path in files))[:100]
    numbers = read(reader, form, files, replace(options, source=options.source or name))
    tables = {f"{name}.csv": numbers.points}
    if values:  # a value that is nan is written as such, and no empty cell
        kept = numbers.values.dropna(axis="columns", how="all")
        tables[f"{name}-values.csv"] = kept.assign(value=kept["value"].map(repr))
    written = {
        out / at: frame.to_csv(index=False, lineterminator="\n").encode()
        for at, frame in tables.items()
    }
    for path, data in written.items():
        if path in files or (path.exists() and path.read_bytes() != data and not force):
            raise UsageError(f"{path} is there already; choose another --out, or --force")
    out.mkdir(parents=True, exist_ok=True)
    for path, data in written.items():
        write_whole(path, data)
    for warning in numbers.warnings:
        if ": 0 of " not in warning:
            print(f"warning: {warning}", file=sys.stderr)
    if epochs:
        yield from _epochs(numbers.values, reader)
        return
    yield from _lines(numbers, reader.notes)
    if not options.source:
        yield f"note: the source is {name}; baselines are looked for in one --source"
    yield " and ".join(map(str, written))


def _epochs(values: pd.DataFrame, form: Format) -> Iterator[str]:
    tables = list(by_epoch(values, form))
    if not tables:
        yield "No number names an epoch."
    for place, rows in tables:
        if len(tables) > 1:
            yield f"{place['backend']}, {count(int(place['world_size']), 'rank')}:"
        cells: Any = zip(rows.index, rows.itertuples(index=False), strict=True)
        lines = [[f"{epoch:g}", *map(number, numbers)] for epoch, numbers in cells]
        yield table(["epoch", *rows.columns], lines)


def _lines(numbers: Imported, notes: Sequence[str]) -> Iterator[str]:
    rows: Any = numbers.points.itertuples()
    for row in rows:
        size = count(int(row.world_size), "rank")
        text = f"{row.backend}, {size}: {row.quantity} {row.value:.6g}"
        yield f"{text} (n = {row.n}; {row.reducer}; no interval)"
    yield from (f"note: {note}" for note in notes)
    yield from (f"note: {warning}" for warning in numbers.warnings if ": 0 of " in warning)
