"""RunConfig: all that defines one run, checked when made; the command line is derived from it."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self, get_args

from pydantic import ValidationError, model_validator

from bench import version
from bench.backends.catalogue import CATALOGUE, REFERENCE, frameworks
from bench.config.datasets import ON_DISK
from bench.config.derived import Derived
from bench.config.fields import Curve, Role, Settings, Transport, fields_with
from bench.config.rules import check, require_text
from bench.missing import fitting

__all__ = ["ON_DISK", "Curve", "Parser", "Role", "RunConfig", "Settings"]
__all__ += [
    "Transport",
    "UsageError",
    "explain",
    "fields_with",
    "make_config",
    "near",
    "parse_argv",
]


class UsageError(ValueError):
    """The user's mistake in one line: value, rule and way out; shells print it and exit 2."""

    @property
    def text(self) -> str:
        """The value and the rule."""
        return str(self).partition("; ")[0]

    @property
    def cure(self) -> str:
        """The way out; empty where the line names none."""
        return str(self).partition("; ")[2]


class RunConfig(Derived):
    """One run: one process group, one log. Raises `pydantic.ValidationError` for a broken rule."""

    @model_validator(mode="before")
    @classmethod
    def _prepare(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name, value in data.items():
            if isinstance(value, str | Path) and name != "curves":  # text of a list, may be empty
                require_text(name, str(value))
        if data.get("transport") is not None or data.get("backend") not in frameworks():
            return data
        usual = "nccl" if data.get("device") == "cuda" else "mpi"
        transports = CATALOGUE[data["backend"]].transports
        return {**data, "transport": usual if usual in transports else transports[0]}

    @model_validator(mode="after")
    def _check(self) -> Self:
        check(self)
        return self

    def to_argv(self) -> list[str]:
        """The command line that makes this config: fields that are not at their defaults."""
        fields = type(self).model_fields.items()
        changed = (name for name, field in fields if getattr(self, name) != field.default)
        return [word for name in changed for word in self.to_words(name)]

    def to_words(self, name: str) -> list[str]:
        """One field on the command line, its default too; nothing for None, which has no form."""
        value = self.model_dump(mode="json", include={name})[name]
        if value is None:
            return []
        flag = _flag(name)
        if isinstance(value, bool):
            return [flag if value else "--no-" + flag[2:]]
        return [flag, ",".join(value) if isinstance(value, list) else str(value)]

    def to_toml(self) -> str:
        """This config as a TOML file; None has no TOML form and is left out."""
        import tomlkit  # here: it takes a tenth of a second to load

        return tomlkit.dumps(self.model_dump(mode="json", exclude_none=True))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def near(name: str, valid: Iterable[str]) -> str:
    """'; did you mean ...?' for the closest valid name, else ''."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def explain(error: ValidationError) -> str:
    """First broken rule of a pydantic error as one line: name=value: rule."""
    first_error = error.errors()[0]
    location = ".".join(str(part) for part in first_error["loc"])
    message = first_error["msg"].removeprefix("Value error, ")
    if first_error["type"] == "extra_forbidden":
        return f"unknown key {location!r}"
    return f"{location}={first_error['input']!r}: {message}" if location else message


COMMANDS = ("doctor", "parity", "collectives", "timeline")  # of python -m bench, beside a run


class Parser(argparse.ArgumentParser):
    """Raises UsageError for a wrong argument, in one line, instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def format_help(self) -> str:
        return fitting(super().format_help())


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench",
        usage="python -m bench [--config FILE] [options]    "
        f"or: python -m bench {{{','.join(COMMANDS)}}} [options]",
        description="Measure one configuration, alone or under a launcher; write one run log.",
        epilog="example: mpirun -n 2 --bind-to none python -m bench --backend "
        f"{REFERENCE} --world-size 2 --batch-per-rank 16",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="store_true", help="print the version and stop")
    add("--config", type=Path, metavar="FILE", help="a .toml or .json file; flags override it")
    add("--show-config", action="store_true", help="print the checked configuration as TOML; stop")
    group = parser.add_argument_group()
    for name, field in RunConfig.model_fields.items():
        if name in RunConfig.groups:
            group = parser.add_argument_group(RunConfig.groups[name])
        default = "" if field.default in (None, ()) else f" (default: {field.default})"
        text = f"{field.description}{default}".replace("%", "%%")
        if field.annotation is bool:
            group.add_argument(_flag(name), action=argparse.BooleanOptionalAction, help=text)
            continue
        choices = tuple(CATALOGUE) if name == "backend" else get_args(field.annotation)
        named = choices and all(isinstance(choice, str) for choice in choices)
        hint = "{" + ",".join(choices) + "}" if named else name.upper()
        group.add_argument(_flag(name), help=text, metavar=hint)
    return parser


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ValueError(f"the key {twice!r} stands there twice")
    return dict(pairs)


def _read_fields(path: Path) -> dict[str, Any]:
    """Fields of a config file, each of its very type: 4 is a number, "4" and 4.0 are not.

    Which go together is not checked. Raises UsageError for anything else.
    """
    if path.suffix not in (".toml", ".json"):
        raise UsageError(f"{path}: a config file ends in .toml or .json")
    try:
        text = path.read_text(encoding="utf-8")
        toml = path.suffix == ".toml"
        fields = tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=_once)
        if not isinstance(fields, dict):
            raise ValueError(f"must hold one table of fields, not a {type(fields).__name__}")
        _require_known(fields)
        for name, value in fields.items():
            if isinstance(value, str):
                require_text(name, value)
        # as JSON, in which a path and a list have no other form; a date, no field's type, has none
        text = json.dumps(fields, default=lambda value: {"date": str(value)})
        checked = Derived.model_validate_json(text, strict=True)
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply; write one flat table of fields") from None
    except ValidationError as error:
        raise UsageError(f"{path}: {explain(error)}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    return {name: getattr(checked, name) for name in fields}


def _require_known(fields: Mapping[str, Any]) -> None:
    for name in fields.keys() - RunConfig.model_fields.keys():
        hint = near(name, RunConfig.model_fields) or "; see --help"
        raise UsageError(f"unknown field {name!r}{hint}")


def make_config(fields: Mapping[str, Any]) -> RunConfig:
    """RunConfig from plain values; raises UsageError with one line instead of pydantic's report."""
    _require_known(fields)
    try:
        return RunConfig(**fields)
    except ValidationError as error:
        raise UsageError(explain(error)) from None


def parse_argv(argv: list[str]) -> RunConfig:
    """RunConfig from a command line; raises UsageError on bad input.

    --help, --version and --show-config print and exit 0.
    """
    parser = _parser()
    namespace, unknown = parser.parse_known_args(argv)
    if unknown:
        word, flags = unknown[0], [flag for x in parser._actions for flag in x.option_strings]
        if not word.startswith("-"):
            rule = "a run is measured by options alone"
            hint = near(word, COMMANDS) or f"; {rule}, and other commands are {', '.join(COMMANDS)}"
            raise UsageError(f"unknown command {word!r}{hint}")
        raise UsageError(f"unknown option {word!r}{near(word, flags) or '; see --help'}")
    fields = vars(namespace)
    if fields.pop("version", False):
        _print_and_exit(f"{version()}\n")
    show, path = fields.pop("show_config", False), fields.pop("config", None)
    config = make_config({**(_read_fields(path) if path else {}), **fields})
    if show:
        _print_and_exit(config.to_toml())
    return config


def _print_and_exit(text: str) -> NoReturn:
    sys.stdout.buffer.write(text.encode())  # UTF-8 in every locale, as TOML is
    sys.exit(0)
