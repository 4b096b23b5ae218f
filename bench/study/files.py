"""Read study and site files; a mistake in one is a UsageError of one line that names the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from bench.config import UsageError, explain, near
from bench.study.definition import StrictTable, Study
from bench.study.plan import check_primary, plan

# of a study, what means something where the rest is not valid
_ALONE = {"name", "question", "site", "margin", "launches", "max_launches", "primary"}
_ALONE |= {"reference", "candidate"}
_T = TypeVar("_T", bound=StrictTable)


def read_study(path: Path) -> Study:
    """Read a study; check that its planned runs are valid, unless a site must first fill it in."""
    study = read(path, Study)
    if not study.needs_site:  # else `fit` checks it
        check_plan(study, path)
    return study


def salvage_study(path: Path, name: str) -> tuple[Study, str]:
    """Read the study of a folder for a report, and what is wrong with its file ('' if nothing).

    A report must not fail over a file that is no whole study: what means something by itself is
    kept, and no point counts as planned. One that names no cells plans nothing, and may say what is
    fixed beforehand all the same. `name` is for want of another.
    """
    try:
        return read_study(path), ""
    except UsageError as error:
        wrong = str(error).removeprefix(f"{path}: ")
    fields: dict[str, Any] = {
        "name": name,
        "question": "",
        "cells": (),
        "scaling": (),
        "launches": 0,
    }
    values: dict[str, Any] = {}
    with suppress(UsageError, ValueError):
        values = tomllib.loads(read_text(path))
    if values and "cells" not in values:
        wrong = ""
    for key in sorted(values.keys() & _ALONE):
        kind = TypeAdapter[Any](Study.model_fields[key].rebuild_annotation())
        try:
            fields[key] = kind.validate_python(values[key])
        except ValidationError as error:
            wrong = wrong or f"{key}={values[key]!r}: {error.errors()[0]['msg']}"
    return Study.model_construct(**fields), wrong


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
