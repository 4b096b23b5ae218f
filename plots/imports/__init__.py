"""Other tools' logs as observations: one module a format, shipped in `extras` or the user's."""

from __future__ import annotations

from bench import factory
from bench.config import UsageError
from bench.extras import names
from plots.imports.observation import Format

FORMATS = tuple(name.replace("_", "-") for name in names("plots/imports"))


def find(form: str) -> Format:
    """The format of that name, or at package.module:ATTRIBUTE. Raises UsageError."""
    reader = factory.format_of("plots/imports", form, "FORMAT")
    if not isinstance(reader, Format):
        kind = type(reader).__name__
        raise UsageError(f"format {form!r} is a {kind}; give a plots.imports.observation.Format")
    return reader
