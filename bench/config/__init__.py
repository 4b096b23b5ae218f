"""RunConfig, the checked configuration of one run, and the command line that is derived from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from pydantic import ValidationError, model_validator

from bench import version
from bench.backends.catalogue import CATALOGUE, REFERENCE, frameworks
from bench.config.fields import ON_DISK, Curve, Fields, Role, Settings, Transport, fields_with
from bench.config.rules import check, require_text
from bench.options import (
    Parser,
    UsageError,
    explain,
    near,
    new_parser,
    read_words,
)

__all__ = ["ON_DISK", "Curve", "Parser", "Role", "RunConfig", "Settings", "Transport"]
__all__ += ["UsageError", "explain", "fields_with", "make_config", "near", "parse_argv"]
__all__ += ["strictly"]


class RunConfig(Fields):
    """Checked configuration of a run; a wrong value or combination raises ValidationError."""

    example: ClassVar[str] = (
        f"mpirun -n 2 --bind-to none python -m bench --backend {REFERENCE} --world-size 2 "
        "--batch-per-rank 16"
    )

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


# of python -m bench, beside a run
COMMANDS = {
    "doctor": "look at this machine or launch, and compare gradients of each cell",
    "collectives": "time a cell's collectives",
    "timeline": "record a training step, for --emulate",
}
_PROG = "python -m bench"
_ABOUT = """Measure one configuration, alone or under a launcher; write one run log.

On standard output stand images/s of a device and of all, in two lines that test suites parse, and
a line of JSON behind the word hvd-ddp-fom. There, +- is half the 95 % interval of the windows'
mean, from the windows of this run alone, not 1.96 standard deviations; nan where there is one
window. Everything else goes to standard error."""


def _parser(prog: str, about: str) -> Parser:
    usage = f"{prog} [options]"
    usage += f"    or: {prog} COMMAND [options]" if prog == _PROG else ""
    parser = new_parser(RunConfig, prog, usage=usage, about=about)
    add = parser.add_argument
    add("--version", action="store_true", help="print the version and stop")
    add("--show-config", action="store_true", help="print the checked configuration as TOML; stop")
    if prog == _PROG:
        commands = "\n".join(f"  {name:11}  {text}" for name, text in COMMANDS.items())
        parser.description = f"{parser.description}\n\ncommands beside a run:\n{commands}"
    return parser


def strictly(values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate a file's values by field name, strictly by type: neither 4.0 nor "4" is an integer.

    Returns the values as RunConfig holds them (Path, tuple). Rules between fields are not checked.
    Raises UsageError for an unknown field or a value of wrong type or size.
    """
    # as JSON, in which a path and a list have no other form; a date, no field's type, has none
    text = json.dumps(values, default=lambda value: {"date": str(value)})
    try:
        checked = Fields.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise UsageError(explain(error, Fields.model_fields)) from None
    return {name: getattr(checked, name) for name in values}


def make_config(fields: Mapping[str, Any]) -> RunConfig:
    """Make a RunConfig from values by field name. Raises UsageError of one line for bad values."""
    try:
        return RunConfig(**fields)
    except ValidationError as error:
        raise UsageError(explain(error, Fields.model_fields)) from None


def parse_argv(argv: list[str], prog: str = _PROG, about: str = _ABOUT) -> RunConfig:
    """Parse the command line of `prog` into a RunConfig. Raises UsageError on bad input.

    --help, --version and --show-config print and exit 0. `about` is the description in --help.
    """
    if prog == _PROG and argv and argv[0][:1] not in ("-", ""):
        rule = f"a run is measured by options alone, and other commands are {', '.join(COMMANDS)}"
        raise UsageError(f"unknown command {argv[0]!r}{near(argv[0], COMMANDS) or f'; {rule}'}")
    fields = read_words(_parser(prog, about), argv)
    if fields.pop("version", False):
        _print_and_exit(f"{version()}\n")
    show = fields.pop("show_config", False)
    config = make_config(fields)
    if config.observe == "framework":
        raise UsageError("observe=framework is of version 1.0.0; use breakdown")
    if show:
        import tomlkit  # here: it takes a tenth of a second to load

        # None has no TOML form and is left out
        _print_and_exit(tomlkit.dumps(config.model_dump(mode="json", exclude_none=True)))
    return config


def _print_and_exit(text: str) -> NoReturn:
    sys.stdout.buffer.write(text.encode())  # UTF-8 in every locale, as TOML is
    sys.exit(0)
