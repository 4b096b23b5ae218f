"""Other tools' logs as observations: one module a format, shipped in `extras` or the user's."""

from __future__ import annotations

from bench import factory
from bench.config import UsageError
from bench.extras import names
from plots.imports.observation import Format

FORMATS = tuple(name.replace("_", "-") for name in names("plots/imports"))


def find(form: str) -> Format:
    """The format of that name, or at package.module:ATTRIBUTE. Raises UsageError."""
    if form not in FORMATS and ":" not in form:
        cure = "or give package.module:FORMAT, your own"
        raise UsageError(f"format {form!r} is none of {', '.join(FORMATS)}; {cure}")
    shipped = f"plots.imports.extras.{form.replace('-', '_')}:FORMAT"
    reader = factory.attribute(f"format {form!r}", shipped if form in FORMATS else form)
    if not isinstance(reader, Format):
        kind = type(reader).__name__
        raise UsageError(f"format {form!r} is a {kind}; give a plots.imports.observation.Format")
    return reader
