"""What a table's columns are: on a page, in CSV and in JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pandas as pd

from bench.study.stats import Estimate
from bench.study.points import Point
from plots.report.format import escape, table


def show(value: Any) -> str:
    """Write a value as it is, several values in a row, and '-' for nothing."""
    return (", ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "-"


_OF_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for their beginning
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|-?inf", re.IGNORECASE)
_FEW = 3  # rows, from which on what all say alike is said once


@dataclass(frozen=True)
class Column:
    """One column of a table, of rows of any type."""

    of: str | Callable[[Any], Any]  # an attribute, such as 'point.cell', or what to make of a row
    title: str = ""  # on the page; '' where the page does not have it
    form: Callable[[Any], str] = show  # how the page writes a value that is not None
    key: str | None = None  # in CSV and JSON; '' where only the page has it; None: the attribute's
    each: bool = False  # stands in every row, even where all say the same

    @property
    def name(self) -> str:
        attribute = self.of.split(".")[-1] if isinstance(self.of, str) else ""
        return attribute if self.key is None else self.key

    def values(self, rows: Sequence[Any]) -> list[Any]:
        """Read this column's value of each row, unrounded."""
        return list(map(attrgetter(self.of) if isinstance(self.of, str) else self.of, rows))


def markdown_table(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """Make the page's table, without what no row says, and with what all say alike above it."""
    pairs = [(c, c.values(rows)) for c in columns if c.title]
    content = [(c, v) for c, v in pairs if not all(map(_says_nothing, v))]
    alike = [(c, v[0]) for c, v in content if not c.each and _alike(v)]
    once = {c.title for c, _ in alike}
    shown = [(c, v) for c, v in content if c.title not in once]
    cells = [["-" if v is None else c.form(v) for v in values] for c, values in shown]
    whole = table([c.title for c, _ in shown], zip(*cells, strict=True))
    above = "; ".join(f"*{escape(c.title)}*: {escape(c.form(value))}" for c, value in alike)
    return f"In every row: {above}.\n\n{whole}" if above else whole


def _says_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and not value)


def _alike(values: Sequence[Any]) -> bool:
    """Check whether three rows or more have one name or count; of measurements that is chance."""
    return (
        len(values) >= _FEW
        and isinstance(values[0], str | int | tuple)
        and all(v == values[0] for v in values)
    )


def records(columns: Sequence[Column], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Make the rows for JSON, unrounded; an estimate is value, low95, high95 and n (blocks)."""
    kept = [c for c in columns if c.name]
    cells = [map(plain, c.values(rows)) for c in kept]
    return [dict(zip([c.name for c in kept], row, strict=True)) for row in zip(*cells, strict=True)]


def csv(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """Write the records as flat CSV: an estimate has four columns, lists are parted by '; '."""
    flat_records = [dict(_flat(record)) for record in records(columns, rows)]
    names = None if flat_records else [*dict.fromkeys(c.name for c in columns if c.name)]
    return csv_text(pd.DataFrame(flat_records, columns=names, dtype=object))


def csv_text(frame: pd.DataFrame) -> str:
    """Write any table as CSV. A text that a spreadsheet would run as a formula gets an apostrophe
    in front; numbers, and texts that are numbers, stay as they are.
    """
    texts = frame.select_dtypes(include=["object", "string"]).columns
    cells = {name: [*map(_inert, frame[name])] for name in texts}
    # as objects: beside a missing one, pandas would make 11 to 11.0
    safe = frame.assign(**{k: pd.Series(v, frame.index, object) for k, v in cells.items()})
    return safe.to_csv(index=False, lineterminator="\n")


def _inert(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    line = value.replace("\r", " ")  # pandas leaves it bare, and readers begin a new row there
    formula = value.startswith(_OF_FORMULAS) and not _NUMBER.fullmatch(value)
    return f"'{line}" if formula else line


def _flat(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if key in ("interval", "another_day"):
            value = dict(zip(("low", "high"), value or (None, None), strict=True))
        if isinstance(value, dict):
            yield from ((f"{key}_{part}", v) for part, v in _flat(value))
        else:
            yield key, "; ".join(map(str, value)) if isinstance(value, tuple | list) else value


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold."""
    match value:
        case Estimate(value=best, low=low, high=high, n=n):
            return {"value": best, "low95": low, "high95": high, "n": n}
        case Mapping():
            return {key: plain(one) for key, one in value.items()}
        case Point():
            fields = {**value._asdict(), "variant": value.words}
            return {**fields, "samples_per_step": value.samples_per_step}
        case _:
            return value
