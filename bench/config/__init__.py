"""RunConfig: everything that defines one run, checked when made; the command line derives from it
both ways.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self, get_args

from pydantic import ValidationError, model_validator

from bench import version
from bench.backends.catalogue import CATALOGUE, REFERENCE, frameworks
from bench.config.fields import (
    MATCHED_BUCKET_MIB,
    Curve,
    Fields,
    Settings,
    Transport,
    fields_with,
)
from bench.config.roles import Role
from bench.config.rules import ON_DISK, check, require_text

__all__ = [
    "MATCHED_BUCKET_MIB",
    "ON_DISK",
    "Curve",
    "Role",
    "RunConfig",
    "Settings",
    "Transport",
    "UsageError",
    "explain",
    "fields_with",
    "make_config",
    "parse_argv",
    "read_fields",
]


class UsageError(ValueError):
    """The user's mistake, in one line that names the value, the rule and the way out; shells print
    it and exit 2.
    """

    @property
    def text(self) -> str:
        """The value and the rule."""
        return str(self).partition("; ")[0]

    @property
    def cure(self) -> str:
        """The way out; empty where the line names none."""
        return str(self).partition("; ")[2]


class RunConfig(Fields):
    """One run: one process group, one log. Construction raises `pydantic.ValidationError` where a
    rule is broken.
    """

    @model_validator(mode="before")
    @classmethod
    def _require_text(cls, data: Any) -> Any:
        for name, value in data.items() if isinstance(data, dict) else ():
            if isinstance(value, str | Path) and name != "curves":  # a list, and none is no curve
                require_text(name, str(value))
        return data

    @model_validator(mode="before")
    @classmethod
    def _default_transport(cls, data: Any) -> Any:
        if (
            isinstance(data, dict)
            and data.get("transport") is None
            and data.get("backend") in frameworks()
        ):
            return {**data, "transport": "nccl" if data.get("device") == "cuda" else "mpi"}
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        check(self)
        return self

    def to_argv(self) -> list[str]:
        """The command line that makes this config: fields that differ from their defaults, in field
        order.
        """
        fields = type(self).model_fields
        return [
            word
            for name in fields
            if getattr(self, name) != fields[name].default
            for word in self.to_words(name)
        ]

    def to_words(self, name: str) -> list[str]:
        """One field on the command line, its default too; nothing for None, which has no form
        there.
        """
        value = self.model_dump(mode="json", include={name})[name]
        if value is None:
            return []
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            return [flag if value else "--no-" + flag[2:]]
        return [flag, ",".join(value) if isinstance(value, list) else str(value)]

    def to_toml(self) -> str:
        """The same as a TOML file; None has no TOML form and is left out."""
        import tomlkit  # here: it takes a tenth of a second to load

        return tomlkit.dumps(self.model_dump(mode="json", exclude_none=True))


def explain(error: ValidationError) -> str:
    """First broken rule of a pydantic error as one line: name=value: rule."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"unknown key {where!r}"
    return f"{where}={first['input']!r}: {message}" if where else message


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _value_hint(name: str, annotation: Any) -> str | None:
    choices = tuple(CATALOGUE) if name == "backend" else get_args(annotation)
    return (
        "{" + ",".join(choices) + "}"
        if choices and all(isinstance(c, str) for c in choices)
        else None
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m bench",
        usage="python -m bench [--config FILE] [options]    or: python -m bench doctor [options]",
        description="Measure one configuration, alone or under mpirun, srun or torchrun, and "
        "write one run log.",
        epilog="example: mpirun -n 2 --bind-to none python -m bench --backend "
        f"{REFERENCE} --world-size 2 --batch-per-rank 16",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="read fields from a .toml or .json file; flags override it",
    )
    parser.add_argument(
        "--show-config",
        action="store_true",
        help="print the configuration that the other options make, checked, as TOML; stop",
    )
    group = parser.add_argument_group()
    for name, field in RunConfig.model_fields.items():
        if name in RunConfig.groups:
            group = parser.add_argument_group(RunConfig.groups[name])
        default = "" if field.default in (None, ()) else f" (default: {field.default})"
        text = ((field.description or "") + default).replace("%", "%%")
        flag = "--" + name.replace("_", "-")
        if field.annotation is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            group.add_argument(
                flag, help=text, metavar=_value_hint(name, field.annotation) or name.upper()
            )
    return parser


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands there twice"
        )
    return fields


_LOADERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": partial(json.loads, object_pairs_hook=_once),
}


def read_fields(path: Path) -> dict[str, Any]:
    """Fields of a config file, each of its very type: 4 is a number, "4" and 4.0 are not; which go
    together is not checked.

    Raises UsageError where the file is neither .toml nor .json, cannot be read, or holds anything
    else.
    """
    if path.suffix not in _LOADERS:
        raise UsageError(f"{path}: a config file ends in .toml or .json")
    try:
        fields = _LOADERS[path.suffix](path.read_text(encoding="utf-8"))
    except RecursionError:
        raise UsageError(
            f"{path}: nested too deeply; a config file is one flat table of fields"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f"{path}: must hold one table of fields, not a {type(fields).__name__}")
    _require_known(fields)
    try:
        for name, value in fields.items():
            if isinstance(value, str):
                require_text(name, value)
        # as JSON, in which a path and a list have no other form; a date has none at all, and is no
        # field's type
        checked = Fields.model_validate_json(
            json.dumps(fields, default=lambda value: {"date": str(value)}), strict=True
        )
    except ValidationError as error:
        raise UsageError(f"{path}: {explain(error)}") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    return {name: getattr(checked, name) for name in fields}


def _require_known(fields: Mapping[str, Any]) -> None:
    for name in fields.keys() - RunConfig.model_fields.keys():
        near = difflib.get_close_matches(name, RunConfig.model_fields, n=1)
        raise UsageError(
            f"unknown field {name!r}" + (f"; did you mean {near[0]!r}?" if near else "; see --help")
        )


def make_config(fields: Mapping[str, Any]) -> RunConfig:
    """RunConfig from plain values; raises UsageError with one line instead of pydantic's report."""
    _require_known(fields)
    try:
        return RunConfig(**fields)
    except ValidationError as error:
        raise UsageError(explain(error)) from None


def parse_argv(argv: list[str]) -> RunConfig:
    """RunConfig from a command line. --help, --version and --show-config print and exit 0; raises
    UsageError on bad input.
    """
    parser = _parser()
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        flags = [f for action in parser._actions for f in action.option_strings]
        near = difflib.get_close_matches(unknown[0], flags, n=1)
        raise UsageError(
            f"unknown option {unknown[0]!r}"
            + (f"; did you mean {near[0]!r}?" if near else "; see --help")
        )
    fields = vars(given)
    if fields.pop("version", False):
        _print_and_exit(f"{version()}\n")
    show, path = fields.pop("show_config", False), fields.pop("config", None)
    config = make_config({**(read_fields(path) if path else {}), **fields})
    if show:
        _print_and_exit(config.to_toml())
    return config


def _print_and_exit(text: str) -> NoReturn:
    sys.stdout.buffer.write(text.encode())  # UTF-8 in every locale, as TOML is
    sys.exit(0)
