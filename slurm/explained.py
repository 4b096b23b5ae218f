"""A file to start from: every key of a site or a study, explained, and set or commented out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import tomlkit

from bench.config import UsageError
from bench.study.definition import StrictTable
from bench.study.disk import write_whole


def new_file(name: str) -> Path:
    """NAME.toml in this folder. Raises UsageError if the name will not do."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
        raise UsageError(f"{name!r} also names a file; use lower-case letters, digits, '-' and '_'")
    return Path(f"{name}.toml")


def write_new(path: Path, text: str) -> None:
    """Write a file. Raises UsageError if it is there."""
    try:
        write_whole(path, text, replace=False)
    except FileExistsError:
        cure = "choose another name, or remove it"
        raise UsageError(f"{path} exists and is never overwritten; {cure}") from None


def explained(
    kind: type[StrictTable],
    values: Mapping[str, Any],
    more: Mapping[str, tuple[str, ...]],
    prefix: str = "",
) -> list[str]:
    """Lines of TOML: keys first, then tables, as it wants them.

    `values` by dotted key are set, other keys commented out with their default; `more`: further
    lines of comment on a key. A table that may be left out is, unless it has a value.
    """
    plain, tables = [], []
    for name, field in kind.model_fields.items():
        key, about = prefix + name, field.description
        kinds = [t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type)]
        nested = next((t for t in kinds if issubclass(t, StrictTable)), None)
        if nested:
            is_set = nested is field.annotation or any(v.startswith(f"{key}.") for v in values)
            lines = explained(nested, values, more, f"{key}.")
            tables += ["", f"{'' if is_set else '# '}[{name}]  # {about}"]
            tables += lines if is_set else [f"# {line.removeprefix('# ')}" for line in lines]
        elif key in values and isinstance(values[key], dict):
            tables += ["", f"[{name}]  # {about}", *_lines(values[key])]
        elif field.default == {}:
            title = f"[{name}]" if name == "env" else f"# [{name}.NAME]"
            tables += ["", f"{title}  # {about}", '# NAME = "value"']
        else:
            choices = ", ".join(str(c) for c in get_args(field.annotation) if isinstance(c, str))
            plain += [f"# {about}" + (f" (one of: {choices})" if choices else "")]
            plain += [f"# {line}" for line in more.get(key, ())]
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            unset = f"# {name} = {'...' if default is None else json.dumps(default)}"
            plain += _lines({name: values[key]}) if key in values else [unset]
    return plain + tables


def _lines(values: Mapping[str, Any]) -> list[str]:
    return tomlkit.dumps(values).rstrip().splitlines()
