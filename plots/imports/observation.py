"""What a foreign log states, as a long table: numbers as they stand there, and of what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from csv import QUOTE_NONE
from dataclasses import dataclass
from io import StringIO
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
_PIECE = 1 << 20  # characters
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
        found = (wide(pattern, piece) for piece in _pieces(text) for pattern in compiled)
        return together(long(one) for one in found if len(one))

    return read


def _pieces(text: str) -> Iterator[str]:
    """Of whole lines: what is made of a million at once fits into no cache."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end


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
    names = list(pattern.groupindex)
    rows = pattern.findall(text)
    texts = np.array(rows, dtype=object).reshape(len(rows), len(names))
    return pd.DataFrame(texts, columns=names, dtype=object)


def long(texts: pd.DataFrame) -> pd.DataFrame:
    """A row for each quantity of each match. Raises UsageError where one is no number."""
    places = {
        name: floats(texts[name].where(texts[name] != "", "nan"))
        for name in texts
        if name in PLACES
    }
    places |= {name: texts[name] for name in texts if name in WORDS}
    parts = []
    for name in map(str, texts):
        if name not in places:
            there = texts[name] != ""
            quantity, unit = in_seconds(name)
            own = pd.DataFrame({"value": texts[name], **places})
            own = own if there.all() else own[there]  # of a million rows a copy takes its time
            values = floats(own["value"].rename(name)) * unit
            parts.append(own.assign(quantity=constant(quantity, own), value=values))
    return together(parts)


def floats(texts: pd.Series[Any]) -> pd.Series[float]:
    """Its numbers. Raises UsageError for a text that is none."""
    lines = StringIO("\n".join(map(str, texts.to_list())))
    alone: Any = {"header": None, "quoting": QUOTE_NONE, "skip_blank_lines": False}
    try:  # in a third of the time that Python takes, and as exact
        fast = pd.read_csv(lines, sep="\t", dtype=float, na_filter=False, **alone)[0].to_numpy()
        if len(fast) == len(texts):
            return pd.Series(fast, texts.index, name=texts.name)
    except ValueError:  # no number, or one that only Python reads: nan
        pass
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
