"""Columns: a table is a list of them, printed as Markdown, CSV and JSON from one declaration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from operator import attrgetter
from typing import Any

import pandas as pd

from bench.study.stats import Estimate
from plots.analyse.points import Point
from plots.report.format import table

_INTERVALS = ("ci95", "ci90")  # keys of pairs of ends


def show(value: Any) -> str:
    """A value as it is; what there are several of, in a row; '-' for nothing."""
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return "-" if value is None or value == "" else str(value)


def anyway(values: Sequence[Any]) -> bool:
    """A column that a page always has."""
    return True


def known(values: Sequence[Any]) -> bool:
    """A column that a page has where any row says something in it."""
    return any(value is not None and value != () for value in values)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table, of rows of any type."""

    key: str  # in CSV and JSON; '' where only the page has it
    title: str  # on the page; '' where the page does not have it
    get: Callable[[Any], Any]  # a row's value, unrounded
    form: Callable[[Any], str] = show  # how the page writes a value that is not None
    when: Callable[[Sequence[Any]], bool] = anyway  # whether the page has it, from all values


def column(
    path: str,
    title: str = "",
    form: Callable[[Any], str] = show,
    *,
    key: str | None = None,
    when: Callable[[Sequence[Any]], bool] = anyway,
) -> Column:
    """The column of an attribute, such as 'point.cell'; its key is the attribute's own name."""
    name = path.rpartition(".")[2] if key is None else key
    return Column(key=name, title=title, get=attrgetter(path), form=form, when=when)


def markdown(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """The table on the page."""
    found = [(c, [c.get(row) for row in rows]) for c in columns if c.title]
    there = [(c, values) for c, values in found if c.when(values)]
    cells = [["-" if v is None else c.form(v) for v in values] for c, values in there]
    return table([c.title for c, _ in there], zip(*cells, strict=True))


def records(columns: Sequence[Column], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows for JSON, unrounded; an estimate is value, low95, high95 and n (blocks)."""
    return [{c.key: plain(c.get(row)) for c in columns if c.key} for row in rows]


def csv(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """The same, flat: an estimate has a column for each of its four; lists are parted by '; '."""
    found = records(columns, rows)
    flat = [dict(pair for k, v in record.items() for pair in _flat(k, v)) for record in found]
    names = list(dict.fromkeys(name for row in flat for name in row))
    names = names or [c.key for c in columns if c.key]
    frame = pd.DataFrame(flat, columns=names, dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def _flat(key: str, value: Any) -> list[tuple[str, Any]]:
    if key in _INTERVALS:
        low, high = value or (None, None)
        return [(f"{key}_low", low), (f"{key}_high", high)]
    match value:
        case dict():
            return [pair for k, v in value.items() for pair in _flat(f"{key}_{k}", v)]
        case tuple() | list():
            return [(key, "; ".join(map(str, value)))]
        case _:
            return [(key, value)]


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    match value:
        case Estimate():
            return {"value": value.value, "low95": value.low, "high95": value.high, "n": value.n}
        case Point():
            return {**value._asdict(), "samples_per_step": value.samples_per_step}
        case _ if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        case _:
            return value
