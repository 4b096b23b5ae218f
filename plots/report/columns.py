"""What a table's columns are: on a page, in CSV and in JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pandas as pd

from bench.study.stats import Estimate
from plots.analyse.points import Point
from plots.report.format import table


def show(value: Any) -> str:
    """A value as it is; what there are several of, in a row; '-' for nothing."""
    return (", ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "-"


@dataclass(frozen=True)
class Column:
    """One column of a table, of rows of any type."""

    of: str | Callable[[Any], Any]  # an attribute, such as 'point.cell', or what to make of a row
    title: str = ""  # on the page; '' where the page does not have it
    form: Callable[[Any], str] = show  # how the page writes a value that is not None
    key: str | None = None  # in CSV and JSON; '' where only the page has it; None: the attribute's
    sparse: bool = False  # the page leaves it out where no row says anything in it

    @property
    def name(self) -> str:
        own = self.of.split(".")[-1] if isinstance(self.of, str) else ""
        return own if self.key is None else self.key

    def values(self, rows: Sequence[Any]) -> list[Any]:
        """Unrounded."""
        return list(map(attrgetter(self.of) if isinstance(self.of, str) else self.of, rows))


def markdown_table(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """The table on the page."""
    found = [(c, c.values(rows)) for c in columns if c.title]
    there = [(c, v) for c, v in found if not c.sparse or any(x not in (None, ()) for x in v)]
    cells = [["-" if v is None else c.form(v) for v in values] for c, values in there]
    return table([c.title for c, _ in there], zip(*cells, strict=True))


def records(columns: Sequence[Column], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows for JSON, unrounded; an estimate is value, low95, high95 and n (blocks)."""
    kept = [c for c in columns if c.name]
    cells = [map(plain, c.values(rows)) for c in kept]
    return [dict(zip([c.name for c in kept], row, strict=True)) for row in zip(*cells, strict=True)]


def csv(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """The same, flat: an estimate has a column for each of its four; lists are parted by '; '."""
    found = [dict(_flat(record)) for record in records(columns, rows)]
    names = None if found else [c.name for c in columns if c.name]
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
    match value:
        case Estimate(value=best, low=low, high=high, n=n):
            return {"value": best, "low95": low, "high95": high, "n": n}
        case Mapping():
            return {key: plain(one) for key, one in value.items()}
        case Point():
            return {**value._asdict(), "samples_per_step": value.samples_per_step}
        case _:
            return value
