"""Forms of texts and numbers in a report: how they are cleaned, escaped and rounded."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.study.words import ends

if TYPE_CHECKING:  # what writes no interval starts without scipy
    from bench.study.stats import Estimate

_LONGEST_NAME = 200  # of a file
_LINK = re.compile(r"^\[|\][(\[]")  # what may begin a link, its definition or a box to tick

ratio = "{:.3f}".format


def clean(text: str, limit: int = 300) -> str:
    """Turn text of a log or a study into one printable line, cut at the limit."""
    line = " ".join(text[: 2 * limit].split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    if len(text) <= 2 * limit and len(line) <= limit:
        return line
    return f"{line[:limit]}... ({len(text):,} characters)"


def escape(value: object, limit: int = 1000) -> str:
    """Clean a text and escape it for Markdown: no tag, link, heading or formula is left."""
    line = clean(str(value), limit).replace("`", "'").replace("\\", "\\\\")
    line = html.escape(line, quote=False)
    line = re.sub(r"([*~$|]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", line)
    if _LINK.search(line):  # the brackets of an interval stay as they are
        line = re.sub(r"([\[\]])", r"\\\1", line)
    line = re.sub(r"^(?=(#+|[+-]|=+|-{2,})(\s|$))", "" if line == "-" else r"\\", line)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", line)


def interval(e: Estimate, form: Callable[[float], str]) -> str:
    """Write an estimate: '64.7 % [62.3, 67.2]', or with n < 6 '64.7 % (n=2: 64.2, 65.2)'."""
    if e.shown is not None:
        # no end of a ratio is written as 1 unless it is 1
        low, high = ends(*e.shown, 3, 1.0) if form is ratio else map(form, e.shown)
        return f"{form(e.value)} [{low}, {high}]".replace(" %,", ",").replace(" %]", "]")
    if e.n == 1 or not e.launches:  # none of two groups that share no launch
        return f"{form(e.value)} (n={e.n}, no interval)"
    return f"{form(e.value)} (n={e.n}: {', '.join(form(b).removesuffix(' %') for b in e.launches)})"


def short(e: Estimate, form: Callable[[float], str]) -> str:
    """Write a value as `interval` does, or with n alone where there is no interval to show."""
    return interval(e, form) if e.shown else f"{form(e.value)} (n = {e.n})"


def rate(x: float) -> str:
    """Write images per second: '67.4', '3,760'."""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 10 else f"{x:.3g}"


def percent(x: float) -> str:
    return f"{100 * x:,.1f} %"


def ms(x: float) -> str:
    return f"{1000 * x:,.1f}"


def megabytes(x: float) -> str:
    return f"{x / 1e6:,.1f}"


def giga(x: float) -> str:
    """Write operations per second, in 10^9: '3.42', '12,300'."""
    return rate(x / 1e9)


def seconds(x: float) -> str:
    """Write seconds: '0.304', '16.5', '1,234'."""
    return f"{x:,.0f}" if x >= 999.5 else f"{x:.3g}"


def p_value(x: float) -> str:
    return "<0.0001" if x < 1e-4 else f"{x:.4f}"


def number(value: Any) -> str:
    """Write a value of an imported table: floats with six digits, '-' if it is missing."""
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def slug(title: str) -> str:
    """Make a heading's anchor: 'Step times' becomes 'step-times'."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Make a Markdown table and escape its cells."""
    cells = [[*map(escape, line)] for line in (head, *rows)]
    return "\n".join(f"| {' | '.join(x)} |" for x in (cells[0], ["---"] * len(head), *cells[1:]))


def file_names(name: str, keys: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Yield each distinct key (a tuple) with its file name, as 'weak-nesterov-true-matched-16'.

    It is `name`, followed by those parts of the key that are not alike in all keys.
    """
    keys = list(dict.fromkeys(keys))
    varies = [len(set(parts)) > 1 for parts in zip(*keys, strict=True)]
    for key in keys:
        differing = [str(part) for part, other in zip(key, varies, strict=True) if other]
        words = [re.sub(r"[^a-z0-9._]+", "-", part.lower()).strip("-") for part in differing]
        yield key, "-".join([name, *words])[:_LONGEST_NAME]
