"""Readers of study and site files. A mistake raises UsageError, in a line that names the file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import ValidationError

from bench.config import UsageError, explain
from bench.study.definition import StrictTable, Study
from bench.study.plan import check_primary, plan

_T = TypeVar("_T", bound=StrictTable)


def read_study(path: Path) -> Study:
    """Read a study; if it has cells and needs no site file, check its plan. Raises UsageError."""
    study = read(path, Study)
    if study.cells and not study.needs_site:  # else `fit` checks it
        check_plan(study, path)
    return study


def check_plan(study: Study, path: Path) -> None:
    """Raise UsageError unless every planned run, and the primary comparison, are valid."""
    try:
        plan(study, 1, Path("runs"))  # the other launches differ in their seeds and orders alone
        check_primary(study)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read(path: Path, kind: type[_T]) -> _T:
    """Read a TOML file as a `kind`. Raises UsageError if it cannot be read or is invalid."""
    text = read_text(path)
    try:
        return kind(**tomllib.loads(text))
    except ValidationError as error:
        raise UsageError(f"{path}: {explain(error, _keys(kind))}") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def read_text(path: Path) -> str:
    """Read a study or site file, as UTF-8 in every locale. Raises UsageError if this fails."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {error}") from None


def _keys(kind: type[StrictTable]) -> Iterator[str]:
    """Yield the keys that a `kind` of table may have, and those of the tables nested in it."""
    for name, field in kind.model_fields.items():
        yield name
        for table in (field.annotation, *get_args(field.annotation)):
            if isinstance(table, type) and issubclass(table, StrictTable):
                yield from _keys(table)
