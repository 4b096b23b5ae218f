"""Read study and site files; a mistake in one is a UsageError of one line that names the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from bench.config import UsageError, explain, near
from bench.study.definition import Broken, StrictTable, Study, earlier_form
from bench.study.plan import check_primary, check_size, plan

_MAX_BYTES = 2**20
# of a study, what means something where the rest is not valid
_ALONE = ["name", "question", "site", "margin", "launches", "max_launches", "primary"]
_ALONE += ["reference", "candidate", "arms"]
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
    with suppress(ValueError, RecursionError):
        values = tomllib.loads(read_text(path))
    if values and "cells" not in values:
        wrong = ""
    if earlier_form(values):  # its arms were of one cell, beside runs that had none
        values.pop("arms", None)
    for key in [key for key in _ALONE if key in values]:
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
        check_size(study, study.launches)
        check_primary(study)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read(path: Path, kind: type[_T], with_lines: bool = False) -> _T:
    """Read a TOML file as a `kind`. Raises UsageError, `with_lines` with the line to mend."""
    try:
        return kind(**tomllib.loads(text := read_text(path)))
    except ValidationError as error:
        if with_lines:
            raise UsageError(_with_line(path, text, error, kind)) from None
        raise UsageError(f"{path}: {_explain(error, kind)}") from None
    except UsageError:
        raise
    except ValueError as error:  # TOML or text that cannot be decoded
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        needs = f"a {kind.__name__.lower()} needs two levels"
        raise UsageError(f"{path}: tables or lists are nested too deeply; {needs}") from None


def read_text(path: Path) -> str:
    """Read a study or site file, UTF-8 in every locale. Raises UsageError, ValueError."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        longer = f"longer than {_MAX_BYTES} bytes, so this is no study or site file"
        raise UsageError(f"{path}: {longer}; name another")
    return data.decode("utf-8")


def _with_line(path: Path, text: str, error: ValidationError, kind: type[StrictTable]) -> str:
    """Add to `_explain` the line to change and, for an unknown key, all valid ones."""
    first = _first(error)
    broken = first.get("ctx", {}).get("error")
    place = tuple(broken.key.split(".")) if isinstance(broken, Broken) else first["loc"]
    message = _explain(error, kind)
    if first["type"] == "extra_forbidden":
        message += f"; valid here: {', '.join(_fields(kind, first['loc'][:-1]))}"
    return f"{path}, line {line_of(text, place)}: {message}"


def line_of(text: str, place: Sequence[object]) -> int:
    """Find the 1-based line of the key at `place` in a TOML text, else of its table, else 1."""
    wanted = tuple(str(part) for part in place if not str(part).isdecimal())
    table: tuple[str, ...] = ()
    best, best_length = 1, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([\w.\-]+)\s*\]", line):
            table = keys = tuple(header[1].split("."))
        elif key := re.match(r"\s*([\w.\-]+)\s*=", line):
            keys = (*table, *key[1].split("."))
        else:
            continue
        if len(keys) > best_length and keys == wanted[: len(keys)]:
            best, best_length = number, len(keys)
    return best


def _explain(error: ValidationError, kind: type[StrictTable]) -> str:
    """Explain the first broken rule, with the key near an unknown one, or what a missing one is."""
    first = _first(error)
    *parents, key = first["loc"] or ("",)
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {where!r}{near(str(key), _fields(kind, parents))}"
    if first["type"] == "missing":
        return f"key {where!r} is missing: {_fields(kind, parents)[str(key)]}"
    return re.sub(r"(Input|Tuple) should", "should", explain(error))


def _first(error: ValidationError) -> Any:
    """Choose the first error, but an unknown key before the missing key that it misspells."""
    first, *others = error.errors()
    if first["type"] != "missing":
        return first
    return next((e for e in others if e["type"] == "extra_forbidden"), first)


def _fields(kind: type[StrictTable], parents: Sequence[Any]) -> dict[str, str]:
    """Name and description of every key of the table that `parents` lead to, through lists too."""
    for parent in (name for name in parents if isinstance(name, str)):
        annotation = kind.model_fields[parent].annotation
        types = [t for t in (annotation, *get_args(annotation)) if isinstance(t, type)]
        kind = next(t for t in types if issubclass(t, StrictTable))
    return {name: field.description or "" for name, field in kind.model_fields.items()}
