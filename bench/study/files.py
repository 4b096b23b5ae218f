"""Read study and site files; a mistake in one is a UsageError of one line that names the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import ValidationError

from bench.config import UsageError, explain, near
from bench.study.definition import StrictTable, Study
from bench.study.plan import check_primary, plan

_T = TypeVar("_T", bound=StrictTable)


def read_study(path: Path) -> Study:
    """Read a study; check its planned runs, unless it names none or a site must fill it in.

    Raises UsageError.
    """
    study = read(path, Study)
    if study.cells and not study.needs_site:  # else `fit` checks it
        check_plan(study, path)
    return study


def check_plan(study: Study, path: Path) -> None:
    """Raise UsageError unless every planned run is valid."""
    try:
        plan(study, 1, Path("runs"))  # the other launches differ in their seeds and orders alone
        check_primary(study)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read(path: Path, kind: type[_T]) -> _T:
    """Read a TOML file as a `kind`. Raises UsageError."""
    try:
        return kind(**tomllib.loads(read_text(path)))
    except ValidationError as error:
        raise UsageError(f"{path}: {_explain(error, kind)}") from None
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:  # TOML or text that cannot be decoded
        raise UsageError(f"{path}: {error}") from None


def read_text(path: Path) -> str:
    """Read a study or site file, UTF-8 in every locale. Raises UsageError, ValueError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _explain(error: ValidationError, kind: type[StrictTable]) -> str:
    """Explain the first broken rule, with the key near an unknown one.

    An unknown key goes before the missing key that it misspells.
    """
    unknown = next((e for e in error.errors() if e["type"] == "extra_forbidden"), None)
    first = unknown if error.errors()[0]["type"] == "missing" and unknown else error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {where!r}{near(str(first['loc'][-1]), _keys(kind))}"
    if first["type"] == "missing":
        return f"key {where!r} is missing; add it"
    return re.sub(r"(Input|Tuple) should", "should", explain(error))


def _keys(kind: type[StrictTable]) -> Iterator[str]:
    """List the keys of a file, those of its tables too."""
    for name, field in kind.model_fields.items():
        yield name
        for table in (field.annotation, *get_args(field.annotation)):
            if isinstance(table, type) and issubclass(table, StrictTable):
                yield from _keys(table)
