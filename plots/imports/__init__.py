"""Other tools' logs as observations: presets of patterns, the user's patterns, and CSV."""

from __future__ import annotations

from bench.config import UsageError
from plots.imports import dawnbench, pattern, tables
from plots.imports.observation import Format
from plots.imports.presets import PRESETS

_FORMATS = {
    **PRESETS,
    "dawnbench": dawnbench.FORMAT,
    "csv": tables.FORMAT,
    "pattern": pattern.FORMAT,
}
FORMATS = tuple(_FORMATS)


def find(form: str) -> Format:
    """Look up a format by its name. Raises UsageError."""
    if form not in _FORMATS:
        cure = "the format pattern reads others by --pattern"
        raise UsageError(f"format {form!r} is none of {', '.join(FORMATS)}; {cure}")
    return _FORMATS[form]
