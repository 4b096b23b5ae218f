"""Other tools' tables of collectives in the form of ours, to be drawn beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.study.collectives import KINDS, Measured, Timed
from plots.imports import find
from plots.imports.observation import ImportOptions
from plots.imports.points import read


def measured(form: str, paths: Sequence[Path], world_size: int | None = None) -> list[Measured]:
    """Each file by itself, so that two of one size stay two lines."""
    tables = [m for path in paths for m in _of(form, path, world_size)]
    names = [(m.cell, m.ranks) for m in tables]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two tables are of {twice[0]} and {twice[1]} ranks; leave out one")
    return tables


def _of(form: str, path: Path, world_size: int | None) -> list[Measured]:
    options = ImportOptions(world_size=world_size, backend=form)
    values = read(find(form), form, [path], options).values
    tables = []
    grouped: Any = values.groupby(["world_size", "model"])
    for (world, kind_of_data), rows in grouped:
        timed = []
        for kind in KINDS:
            slowest = rows[rows["quantity"] == f"{kind}_slowest_rank_seconds"]
            mean = rows[rows["quantity"] == f"{kind}_seconds"]
            times = mean if slowest.empty else slowest
            timed += [
                Timed(kind=kind, bytes=int(size), ranks=int(world), seconds=(float(seconds),))
                for size, seconds in zip(times["bytes"], times["value"], strict=True)
                if size > 0 and seconds > 0
            ]
        if timed:
            cell = f"{form}, {kind_of_data}"
            tables.append(
                Measured(cell=cell, ranks=int(world), machine=path.name, timed=tuple(timed))
            )
    if not tables:
        raise UsageError(f"{path}: no collective that is drawn ({', '.join(KINDS)}) is in it")
    return tables
