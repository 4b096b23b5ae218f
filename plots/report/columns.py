"""Columns: a table is a list of them, printed as Markdown, CSV and JSON from one declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pandas as pd

from bench.study.stats import Estimate
from plots.analyse.points import Point
from plots.report.format import table


@dataclass(frozen=True)
class Column:
    """One column of a table, of rows of any type; made by `column`."""

    key: str  # in CSV and JSON; '' where only the page has it
    title: str  # on the page; '' where the page does not have it
    get: Callable[[Any], Any]  # a row's value, unrounded
    form: Callable[[Any], str]  # how the page writes a value that is not None
    sparse: bool  # the page leaves it out where no row says anything in it


def show(value: Any) -> str:
    """A value as it is; what there are several of, in a row; '-' for nothing."""
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return "-" if value == "" else str(value)


def column(
    of: str | Callable[[Any], Any],
    title: str = "",
    form: Callable[[Any], str] = show,
    *,
    key: str | None = None,
    sparse: bool = False,
) -> Column:
    """The column of an attribute, such as 'point.cell', with its own name as key, or of what a
    function makes of a row, with no key unless one is given.
    """
    if isinstance(of, str):
        return Column(
            of.split(".")[-1] if key is None else key, title, attrgetter(of), form, sparse
        )
    return Column(key or "", title, of, form, sparse)


def markdown(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """The table on the page."""
    found = [(c, [c.get(row) for row in rows]) for c in columns if c.title]
    there = [(c, v) for c, v in found if not c.sparse or any(x not in (None, ()) for x in v)]
    cells = [["-" if v is None else c.form(v) for v in values] for c, values in there]
    return table([c.title for c, _ in there], zip(*cells, strict=True))


def records(columns: Sequence[Column], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows for JSON, unrounded; an estimate is value, low95, high95 and n (blocks)."""
    return [{c.key: plain(c.get(row)) for c in columns if c.key} for row in rows]


def csv(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """The same, flat: an estimate has a column for each of its four; lists are parted by '; '."""
    found = [dict(_flat(record)) for record in records(columns, rows)]
    names = None if found else [c.key for c in columns if c.key]
    frame = pd.DataFrame(found, columns=names, dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def _flat(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if key in ("ci95", "ci90"):
            value = dict(zip(("low", "high"), value or (None, None), strict=True))
        if isinstance(value, dict):
            yield from ((f"{key}_{part}", v) for part, v in _flat(value))
        else:
            yield key, "; ".join(map(str, value)) if isinstance(value, tuple | list) else value


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Estimate):
        return {"value": value.value, "low95": value.low, "high95": value.high, "n": value.n}
    if isinstance(value, Point):
        return {**value._asdict(), "samples_per_step": value.samples_per_step}
    return value
