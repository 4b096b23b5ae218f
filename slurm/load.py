"""Find and read study and site files; every mistake in one is a UsageError of one line that names the file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from bench.config import UsageError, explain
from slurm.plan import check_primary, plan
from slurm.site import Site
from slurm.study import Study, Table, near

_HERE = Path(__file__).parent
_T = TypeVar("_T", bound=Table)


def find_study(text: str) -> Path:
    """The study file that a path or the name of a shipped study stands for."""
    path = Path(text)
    if path.suffix == ".toml" or path.is_file():
        return path
    names = _names("studies")
    if text not in names:
        raise UsageError(
            f"{text!r} is neither a shipped study ({', '.join(names)}) nor the path of a .toml file{near(text, names)}"
        )
    return _HERE / "studies" / f"{text}.toml"


def read_study(path: Path) -> Study:
    """A study whose every planned run is known to be valid."""
    study = _read(path, Study)
    try:
        plan(study, study.blocks, Path("runs"))
        check_primary(study)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return study


def read_site(name: str) -> Site:
    """The description of a site by its name."""
    names = _names("sites")
    if name not in names:
        raise UsageError(f"{name!r} is not a known site ({', '.join(names)}){near(name, names)}")
    return _read(_HERE / "sites" / f"{name}.toml", Site)


def _names(folder: str) -> list[str]:
    return sorted(p.stem for p in (_HERE / folder).glob("*.toml"))


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return kind(**tomllib.loads(path.read_text()))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise UsageError(f"{path}: {_explain(error, kind)}") from None
    except ValueError as error:  # TOML or text that cannot be decoded
        raise UsageError(f"{path}: {error}") from None


def _explain(error: ValidationError, kind: type[Table]) -> str:
    """First broken rule: unknown keys get the nearest valid one, missing keys what they are."""
    first = error.errors()[0]
    *parents, key = first["loc"] or ("",)
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {where!r}{near(str(key), _fields(kind, parents))}"
    if first["type"] == "missing":
        return f"key {where!r} is missing: {_fields(kind, parents)[str(key)]}"
    return re.sub(r"(Input|Tuple) should", "should", explain(error))


def _fields(kind: type[Table], parents: list[Any]) -> dict[str, str]:
    """Name and description of every key of the table that `parents` lead to."""
    for parent in parents:
        annotation = kind.model_fields[parent].annotation
        kind = next(t for t in (annotation, *get_args(annotation)) if isinstance(t, type) and issubclass(t, Table))
    return {name: field.description or "" for name, field in kind.model_fields.items()}
