"""python -m plots: turn run logs into figures, tables and a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.config import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def _plots() -> None:
    """Run logs to statistics, figures and a report; needs no torch."""


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="STUDY", help="a study's folder, results/STUDY, with runs/*.jsonl in it")],
    out: Annotated[Path | None, typer.Option(help="folder to write to; default: the study's own")] = None,
) -> None:
    """Write figures, report.md and summary.json of one study beside its logs."""
    if not folder.is_dir():  # before the slow imports
        raise UsageError(f"{folder}: no such folder; give a study's folder, results/STUDY")
    from plots.report import make

    written = make(folder, out or folder)
    typer.echo(f"{written[-1]} and {len(written) - 1} other files")


def main(argv: list[str] | None = None) -> int:
    """Exit code; the user's mistakes are one line on stderr and 2."""
    try:
        app(argv, standalone_mode=False)
    except typer.Exit as done:
        return done.exit_code
    except UsageError as error:
        message = str(error)
    except typer.TyperException as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
    else:
        return 0
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
