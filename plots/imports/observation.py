"""What a foreign log states, as a long table: numbers as they stand there, and of what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from csv import QUOTE_NONE
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from bench.config import UsageError

# what logs write numbers with: 12, 12.5, .5, 1e-3, nan, inf; `long` refuses what is none of them
NUMBER = r"[-+.\dainfeE]+"
PLACES = ("run", "rank", "epoch", "step", "world_size", "batch_per_rank")  # whole numbers
WORDS = ("backend",)  # places that are no numbers
COLUMNS = ("quantity", "value", *PLACES, *WORDS)
_MILLI = "_ms"  # a quantity in milliseconds becomes one in seconds

Reader = Callable[[str], pd.DataFrame]


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of file. `read` raises UsageError where the text contradicts itself.

    Its table has a row for each number, with the columns `COLUMNS`; a quantity is named with its
    unit, such as images_per_s, and a place that the file does not tell is missing.
    """

    read: Reader
    written_by: str
    of_a_rank: bool  # whether images_per_s are of one rank, so that their sum is of all
    cumulative: bool = False  # what stands at an epoch is of all before: the last one counts
    notes: Sequence[str] = ()  # what a reader must know of the numbers


def decode(data: bytes) -> str:
    """Text of a file with or without a byte order mark, of any line ends; never fails."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", errors="replace")
    else:
        text = data.decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def matched(*patterns: str) -> Reader:
    """A reader by lines: a group's name is a quantity or a place.

    A group that took no part in a match says nothing. A pattern that begins with plain letters is
    found fast.
    """
    compiled = [re.compile(pattern, re.MULTILINE) for pattern in patterns]

    def read(text: str) -> pd.DataFrame:
        found = (_parts(list(p.groupindex), p.findall(text)) for p in compiled)
        return together(chain.from_iterable(found))

    return read


def stating(read: Reader, **patterns: str) -> Reader:
    """A reader whose every row has the places that its file states once: world_size=r'GPUs: (..)'.

    It raises UsageError where a file states two.
    """
    compiled = {place: re.compile(pattern) for place, pattern in patterns.items()}

    def both(text: str) -> pd.DataFrame:
        found = read(text)
        for place, pattern in compiled.items():
            said = sorted(set(pattern.findall(text)), key=float)
            if len(said) > 1:
                raise UsageError(f"it states {place} {' and '.join(said)}; part its runs")
            if said:
                found[place] = float(said[0])
        return found

    return both


def wide(pattern: re.Pattern[str], text: str) -> pd.DataFrame:
    """A row for each match, a column of texts for each named group."""
    return _texts(list(pattern.groupindex), pattern.findall(text))


def _texts(names: list[str], rows: Sequence[Any]) -> pd.DataFrame:
    texts = np.array(rows, dtype=object).reshape(len(rows), len(names))
    return pd.DataFrame(texts, columns=names, dtype=object)


def _parts(names: list[str], rows: Sequence[Any]) -> Iterator[pd.DataFrame]:
    """A table for each group's numbers, of `re.findall`'s rows."""
    if not rows:
        return
    lines = rows if len(names) == 1 else map("\t".join, rows)
    try:  # a third of the time that Python takes, and as exact
        numbers = _parsed(lines, names)
    except ValueError:  # no number, or one that only Python reads: nan
        yield from _of_texts(_texts(names, rows))
    else:
        yield from _stacked(numbers, numbers.notna())


def _parsed(lines: Iterable[str], names: list[str]) -> pd.DataFrame:
    """Numbers of lines parted by tabs, nan where there is no text. Raises ValueError."""
    blank: Any = {"keep_default_na": False, "na_values": [""], "skip_blank_lines": False}
    plain: Any = {"header": None, "sep": "\t", "quoting": QUOTE_NONE, "index_col": False}
    found: pd.DataFrame = pd.read_csv(
        StringIO("\n".join(lines)), names=names, dtype=float, **blank, **plain
    )
    return found


def long(texts: pd.DataFrame) -> pd.DataFrame:
    """A row for each quantity of each match. Raises UsageError where one is no number."""
    return together(_of_texts(texts))


def _of_texts(texts: pd.DataFrame) -> Iterator[pd.DataFrame]:
    there = texts != ""
    filled = texts.where(there, "nan")
    read = {str(name): filled[name] if name in WORDS else floats(filled[name]) for name in texts}
    yield from _stacked(pd.DataFrame(read, index=texts.index), there)


def _stacked(wide: pd.DataFrame, there: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """A table for each quantity, with the rows in which it is there."""
    places = wide[[name for name in wide if name in (*PLACES, *WORDS)]]
    for name in map(str, wide.columns.difference(places.columns, sort=False)):
        rows = there[name]
        own, at = (wide[name], places) if rows.all() else (wide.loc[rows, name], places[rows])
        quantity, unit = in_seconds(name)
        yield at.assign(quantity=constant(quantity, at), value=own * unit)


def floats(texts: pd.Series[Any]) -> pd.Series[float]:
    """Its numbers. Raises UsageError for a text that is none."""
    try:
        return texts.astype(float)
    except ValueError as error:
        raise UsageError(f"{texts.name}: {error}; mend the line, or take it out") from None


def together(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Tables under one another, with every column."""
    there = [part for part in parts if len(part)]
    if not there:
        return pd.DataFrame(columns=list(COLUMNS))
    named = union_categoricals([part["quantity"].astype("category") for part in there])
    whole = pd.concat([part.drop(columns="quantity") for part in there], ignore_index=True)
    return whole.assign(quantity=named).reindex(columns=list(COLUMNS))


def constant(text: str, rows: pd.DataFrame) -> pd.Categorical[Any]:
    """A column of one text, which a million rows hold once."""
    return pd.Categorical.from_codes(
        np.zeros(len(rows), dtype="int8"), dtype=pd.CategoricalDtype([text])
    )


def table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Of single rows, each with quantity, value and places."""
    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def in_seconds(quantity: str) -> tuple[str, float]:
    """('step_seconds', 0.001) for 'step_ms'; others stay as they are."""
    if quantity.endswith(_MILLI):
        return quantity.removesuffix(_MILLI) + "_seconds", 1e-3
    return quantity, 1.0
