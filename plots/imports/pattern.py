"""Any log, by the user's own regular expressions: named groups are quantities and places."""

from __future__ import annotations

import re

from bench.config import UsageError
from plots.imports.observation import (
    PLACES,
    WORDS,
    Format,
    ImportOptions,
    Reading,
    Row,
    cut_off,
    cuts_a_number,
    of_groups,
    table,
    understood,
)
from plots.imports.text import Log


def _read(log: Log, options: ImportOptions) -> Reading:
    """A pattern that names only places, such as the epoch, speaks for the lines below it."""
    patterns = _compiled(options)
    marker = re.compile(re.escape(options.marker)) if options.marker else None
    rows: list[Row] = []
    marked, lost, last, parts = 0, [], 0, 0
    below: dict[int | None, dict[str, str | None]] = {}  # by the tag of a rank
    for line in log.lines:
        places = below.setdefault(line.rank, {})
        everywhere = [m for p in patterns for m in p.finditer(line.text)]
        matches = [m for m in everywhere if not cuts_a_number(m)]
        parts += len(everywhere) - len(matches)
        for match in matches:
            groups = {name: text for name, text in match.groupdict().items() if text is not None}
            if set(groups) <= {*PLACES, *WORDS}:
                places.update(groups)
                continue
            rows += of_groups({**places, **groups}, line)
            last = line.number
        if marker is None or marker.search(line.text):
            marked += 1
            if not matches:
                lost.append(line)
    warnings = understood(marked, lost) if marker else [_lines(marked - len(lost), marked)]
    if parts:
        warnings.append(f"{parts} matches take a part of a number alone, and are not read")
    return Reading(table(rows), [*warnings, *cut_off(log, last)])


def _lines(matched: int, total: int) -> str:
    return f"{matched} of {total} lines match; --marker TEXT counts those with TEXT that do not"


def _compiled(options: ImportOptions) -> list[re.Pattern[str]]:
    if not options.patterns:
        raise UsageError(
            "the format pattern needs --pattern, a regular expression; see plots/README"
        )
    compiled = []
    for text in options.patterns:
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise UsageError(f"--pattern {text!r} is no regular expression: {error}") from None
        if not pattern.groupindex:
            raise UsageError(f"--pattern {text!r} names no group, such as (?P<step_ms>[\\d.]+)")
        compiled.append(pattern)
    return compiled


FORMAT = Format(read=_read, written_by="anybody: --pattern reads its lines")
