"""Any log, by the user's own regular expressions: named groups are quantities and places."""

from __future__ import annotations

import re

from bench.config import UsageError
from plots.imports.observation import Format, ImportOptions, Reading, read_lines
from plots.imports.text import Log


def _read(log: Log, options: ImportOptions) -> Reading:
    """Read by --pattern; a line with --marker that none of them matches is told of."""
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
    once = re.compile(f"^.*{re.escape(options.marker)}") if options.marker else None
    return read_lines(log, compiled, once)


FORMAT = Format(read=_read, written_by="anybody: --pattern reads its lines")
