"""python -m plots: turn run logs into figures, tables and a report, and pack them for citing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from bench import version
from bench.missing import explain_missing, give_up

try:
    import typer

    from bench.config import UsageError
except ImportError as missing:
    give_up(missing)

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_HELP = "a study's folder, results/STUDY, with runs/*.jsonl in it"
_FOLDER = typer.Argument(metavar="STUDY", help=_HELP)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(version())
        raise typer.Exit


_VERSION = typer.Option(
    "--version", help="print the version and stop", callback=_show_version, is_eager=True
)


@app.callback()
def _plots(show_version: Annotated[bool, _VERSION] = False) -> None:
    """Run logs to statistics, figures and a report; needs no torch."""


@app.command()
def report(
    folder: Annotated[Path, _FOLDER],
    out: Annotated[Path | None, typer.Option(help="folder to write to; default: STUDY")] = None,
) -> None:
    """Write report.md, figures, summary.json and tables beside a study's logs; print the answer."""
    _require(folder)  # before the slow imports
    if out is None and not ((folder / "study.toml").exists() or (folder / "runs").is_dir()):
        raise UsageError(
            f"{folder} is no study (no study.toml, no runs/), so nothing is written into it; name "
            f"a folder with --out"
        )
    from plots.report.write import make

    for line in make(folder, out or folder):
        typer.echo(line)


@app.command()
def bundle(
    folder: Annotated[Path, _FOLDER],
    out: Annotated[
        Path | None, typer.Option(help="archive, or folder for it; default: STUDY.tar.gz beside it")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="replace an archive that holds something else")
    ] = False,
) -> None:
    """Pack one study for citing: logs, job scripts, a fresh report and a manifest, in one archive.

    A folder that contradicts itself is refused; runs that are missing are listed in the manifest.
    """
    _require(folder)
    from plots.bundle.pack import bundle as pack

    typer.echo(pack(folder, out, force))


@app.command()
def simulate(
    folders: Annotated[list[Path], typer.Argument(metavar="STUDY...", help=_HELP)],
    out: Annotated[Path, typer.Option(help="folder to write to")],
) -> None:
    """Draw studies of known truth with the noise of measured ones: what do the statistics keep?"""
    for folder in folders:
        _require(folder)
    from plots.report.simulate import make

    for line in make(folders, out):
        typer.echo(line)


@app.command()
def collectives(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="one log of each cell")],
    out: Annotated[Path, typer.Option(help="folder to write to")] = Path(),
) -> None:
    """Draw logs of `python -m bench collectives`: time and bus bandwidth against bytes."""
    from bench.study.collectives import read
    from plots.report.figures import collectives as figure
    from plots.report.figures import save

    found = {(m.cell, m.ranks): m for m in map(read, logs)}
    if len(found) < len(logs):
        raise UsageError(f"{len(logs)} logs of {len(found)} cells; give one of each")
    for path in save({"collectives": figure.draw(list(found.values()))}, out):
        typer.echo(path)


def _require(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a study's folder, results/STUDY")


def main(argv: list[str] | None = None) -> int:
    """Exit code; the user's mistakes are one line on stderr and 2, Ctrl-C is 130."""
    try:
        return app(argv, standalone_mode=False) or 0
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        return 130
    except ImportError as error:
        message = explain_missing(error)
    except UsageError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or 'standard output'}: {error.strerror}"
    except typer.TyperException as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
