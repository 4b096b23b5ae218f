"""How texts, numbers and tables are written in a report: rounding happens only here."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pandas as pd

from bench.study.stats import Estimate
from plots.analyse.points import Point

_LONGEST_NAME = 120  # of a file

ratio = "{:.3f}".format


def clean(text: str, limit: int = 300) -> str:
    """Text of a log or a study as one printable line; a digest tells apart what is cut off."""
    head = " ".join(text[: 2 * limit].split())
    line = "".join(c if c.isprintable() else "?" for c in head)
    if len(text) <= 2 * limit and len(line) <= limit:
        return line
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f"{line[:limit]}... ({len(text):,} characters, {digest[:8]})"


def escape(text: str) -> str:
    """The same for Markdown: shown as it is, never a tag, link, heading, emphasis or formula."""
    line = html.escape(clean(text).replace("`", "'").replace("\\", "\\\\"), quote=False)
    line = re.sub(r"([*~$\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", line)
    line = re.sub(r"^(?=(#+|[+-]|=+|-{2,})(\s|$))", "" if line == "-" else r"\\", line)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", line)


def interval(e: Estimate, form: Callable[[float], str]) -> str:
    """'64.7 % [62.3, 67.2]'; below six blocks, where an interval says nothing, their own values."""
    if e.shown is not None:
        low, high = map(form, e.shown)
        return f"{form(e.value)} [{low}, {high}]".replace(" %,", ",").replace(" %]", "]")
    if e.n == 1 or not e.blocks:  # none of two groups that share no block
        return f"{form(e.value)} (n={e.n}, no interval)"
    return f"{form(e.value)} (n={e.n}: {', '.join(form(b).removesuffix(' %') for b in e.blocks)})"


def short(e: Estimate, form: Callable[[float], str]) -> str:
    """As `interval`, with n alone where there is none to show."""
    return interval(e, form) if e.shown else f"{form(e.value)} (n = {e.n})"


def count(n: int, noun: str) -> str:
    """'1 point', '2 points', '1,000 points'."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def rate(x: float) -> str:
    """Images per second: '67.4', '3,760'."""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 10 else f"{x:.3g}"


def percent(x: float) -> str:
    return f"{100 * x:,.1f} %"


def rule(x: float) -> str:
    """A share that somebody fixed, such as a margin: '2 %'."""
    return f"{100 * x:g} %"


def ms(x: float) -> str:
    return f"{1000 * x:,.1f}"


def seconds(x: float) -> str:
    """'0.304', '16.5', '1,234'."""
    return f"{x:,.0f}" if x >= 999.5 else f"{x:.3g}"


def p_value(x: float) -> str:
    return "<0.0001" if x < 1e-4 else f"{x:.4f}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


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


def file_names(name: str, keys: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Each different key with its file's name: 'weak', or with what tells it from the others of
    that name: 'weak-compile-true-matched-16'.
    """
    keys = list(dict.fromkeys(keys))
    varies = [len(set(parts)) > 1 for parts in zip(*keys, strict=True)]
    for key in keys:
        differing = [str(part) for part, other in zip(key, varies, strict=True) if other]
        words = [re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in differing]
        slug = "-".join([name, *words])
        if len(slug) > _LONGEST_NAME:
            digest = hashlib.sha256(repr(differing).encode(errors="replace")).hexdigest()
            slug = f"{slug[:_LONGEST_NAME]}-{digest[:8]}"
        yield key, slug
