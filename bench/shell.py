"""What python -m slurm and python -m plots share: --version, and a mistake in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from bench import version
from bench.config import UsageError
from bench.missing import explain_missing, fitting

_MOST_CHARACTERS = 800  # of an error: a file may hold a value of any length


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(version())
        raise typer.Exit


_VERSION = typer.Option(
    "--version", help="print the version and stop", callback=_print_version, is_eager=True
)
Version = Annotated[bool, _VERSION]


def new_app(text: str) -> typer.Typer:
    """Commands in plain text; `text`: what they are for."""
    help_options = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, help=text, context_settings=help_options
    )


def call(app: typer.Typer, name: str, argv: Sequence[str] | None = None) -> int:
    """Exit code: the command's own, 2 for the user's mistake, 130 after Ctrl-C."""
    trace = ""  # of the user's own code
    try:
        return app(argv, standalone_mode=False, prog_name=fitting(name)) or 0
    except typer.Exit as ending:
        return ending.exit_code
    except typer.Abort:
        return 130
    except ImportError as error:  # some are loaded only where they are needed
        text = explain_missing(error)
    except UsageError as error:
        text, trace = str(error), getattr(error, "trace", "")
    except OSError as error:
        text = f"{error.filename or 'standard output'}: {error.strerror or error}"
    except typer.TyperException as error:
        text = f"{_message(error)}; see {name} --help"
    print(
        f"error: {_one_line(fitting(text))}",
        *filter(None, [trace]),
        sep="\n",
        file=sys.stderr,
        flush=True,
    )
    return 2


def _message(error: Any) -> str:
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    return str(text).replace("Value error, ", "").rstrip(". \n")


def _one_line(text: str) -> str:
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    half = _MOST_CHARACTERS // 2
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:half]} ... {line[-half:]}"
