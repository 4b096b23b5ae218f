"""python -m plots: turn run logs into figures, tables and a report, and pack them for citing."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from bench.missing import give_up

try:
    import typer

    from bench.called import command
    from bench.config import UsageError
    from bench.shell import Version, call, new_app
    from plots.foreign import import_logs, published
    from plots.require import require_folder, require_parent
except ImportError as missing:
    give_up(missing)

app = new_app("Run logs to statistics, figures and a report; needs no torch.")
_HELP = "a study's folder, results/STUDY, with runs/*.jsonl or logs.tar.gz in it"
_FOLDER = typer.Argument(metavar="STUDY", help=_HELP)


@app.callback()
def _plots(version: Version = False) -> None: ...


@app.command()
def report(
    folder: Annotated[Path, _FOLDER],
    out: Annotated[Path | None, typer.Option(help="folder to write to; default: STUDY")] = None,
) -> None:
    """Write report.md, figures, summary.json and tables beside a study's logs; print the answer."""
    require_folder(folder)  # before the slow imports
    if out is None and not ((folder / "study.toml").exists() or (folder / "runs").is_dir()):
        raise UsageError(
            f"{folder} is no study (no study.toml, no runs/), so nothing is written into it; name "
            f"a folder with --out"
        )
    from plots.report.write import make

    for line in make(folder, out or folder):
        typer.echo(line)


@app.command()
def settled(folder: Annotated[Path, _FOLDER]) -> None:
    """Print the primary comparison's verdict; exit code 0 if settled, 1 if more may help."""
    require_folder(folder)
    from plots.report.settled import settled as look

    done, line = look(folder)
    typer.echo(line)
    raise typer.Exit(0 if done else 1)


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="as in the report's figures/, such as ratio")],
    folder: Annotated[Path, _FOLDER],
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write: .svg, .pdf or .png")],
    preset: Annotated[
        Literal["page", "paper", "slide"], typer.Option(help="paper: a column of 3.5 inches")
    ] = "page",
    width: Annotated[
        str, typer.Option(help="of --preset paper, in inches or mm: 3.5in, 178mm")
    ] = "",
    dpi: Annotated[int | None, typer.Option(min=50, max=1200, help="of a .png")] = None,
    title: Annotated[str, typer.Option(help="in place of the figure's own")] = "",
    label: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT: another name in the legend; repeatable")
    ] = None,
    colour: Annotated[
        list[str] | None, typer.Option(help="CELL=COLOUR, six digits as #0072b2; repeatable")
    ] = None,
) -> None:
    """Draw one figure of a report by itself, for a paper or a slide."""
    require_folder(folder)
    require_parent(out)
    if width and preset != "paper":
        raise UsageError(f"width={width} has no effect with --preset {preset}; use paper")
    from plots.report.write import draw_one

    width_in = _inches(width) if width else None
    labels, colours = _named("label", label), _named("colour", colour)
    for cell, text in colours.items():
        if not re.fullmatch("#[0-9a-fA-F]{6}", text):
            raise UsageError(f"--colour {cell}={text}: no colour; write six digits, as #0072b2")
    look: dict[str, Any] = {"width_in": width_in, "dpi": dpi, "title": title}
    typer.echo(draw_one(name, folder, out, preset, **look, labels=labels, colours=colours))


def _named(option: str, words: list[str] | None) -> dict[str, str]:
    """'NAME=TEXT' of a repeatable option. Raises UsageError for another form."""
    for word in words or ():
        if not all(word.partition("=")):
            raise UsageError(f"--{option} {word!r} is not NAME=TEXT; write both")
    return dict(word.split("=", 1) for word in words or ())


def _inches(text: str) -> float:
    """'3.5in' or '178mm'. Raises UsageError for another unit, and what no page is wide."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(in|mm)", text)
    inches = float(match[1]) / {"in": 1.0, "mm": 25.4}[match[2]] if match else 0.0
    if not 3 <= inches <= 12:
        raise UsageError(f"width={text!r} is not from 3 to 12 inches; say 3.5in or 89mm")
    return inches


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
    require_folder(folder)
    from plots.bundle.pack import bundle as pack

    typer.echo(pack(folder, out, force))


@app.command()
def archive(folder: Annotated[Path, _FOLDER]) -> None:
    """Move one study's logs and job scripts into STUDY/logs.tar.gz, where all commands read them.

    `tar xzf` brings them back. A folder that contradicts itself is refused.
    """
    require_folder(folder)
    from plots.bundle.pack import archive_logs

    typer.echo(archive_logs(folder))


@app.command()
def collectives(
    logs: Annotated[
        list[Path] | None, typer.Argument(metavar="LOG", help="one log of each cell")
    ] = None,
    nccl_tests: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="a table of nccl-tests; repeatable")
    ] = None,
    osu: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="a table of OSU micro-benchmarks; repeatable"),
    ] = None,
    world_size: Annotated[int | None, typer.Option(min=1, help="ranks, if no table says")] = None,
    out: Annotated[Path, typer.Option(help="folder to write to")] = Path(),
) -> None:
    """Draw logs of `python -m bench collectives`: time and bus bandwidth against bytes."""
    from bench.study.collectives import read_each
    from plots.imports.collectives import measured
    from plots.report.figures import collectives as figure
    from plots.report.figures import save

    tables = read_each(logs or [])
    tables += measured("nccl-tests", nccl_tests or []) + measured("osu", osu or [], world_size)
    if not tables:
        raise UsageError("no LOG is named, and no table of --nccl-tests or --osu; name one")
    for path in save({"collectives": figure.draw(tables)}, out):
        typer.echo(path)


@app.command()
def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="extra-p, or latex: a table")],
    folder: Annotated[Path, _FOLDER],
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write")],
    curve: Annotated[
        Literal["weak", "strong"], typer.Option(help="of extra-p: ranks are its parameter")
    ] = "weak",
) -> None:
    """Write a study's numbers in another program's format, or its comparisons for a paper."""
    require_folder(folder)
    require_parent(out)
    from plots.report.export import find, write
    from plots.report.write import analysed

    exporter = find(form)
    for line in write(analysed(folder), exporter, curve, out):
        typer.echo(line)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="STUDY", help=_HELP)],
    cells: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="two sides of one study, each CELL[,FIELD=VALUE...]: the second over the first"
        ),
    ] = None,
    fail_below: Annotated[
        float | None,
        typer.Option(min=0.0, help="check the last study: images/s over those of the first"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, see plots/README")] = False,
    out: Annotated[
        Path | None, typer.Option(help="file to write: .md, .json or .html; default: print")
    ] = None,
) -> None:
    """Put studies side by side: systems, dates, versions; or two cells of one study.

    With --fail-below, the exit code is 0 if every point holds, 1 if one is surely slower, 3 if
    that cannot be told (not settled, missing, not comparable), 2 for bad input.
    """
    for folder in folders:
        require_folder(folder)
    if cells is not None and (len(folders) > 1 or fail_below is not None):
        raise UsageError("cells are of one study, and have no before and after; leave the rest out")
    from plots.report import compare as comparing
    from plots.report import gate

    if out is not None:
        require_parent(out)
        comparing.require_form(out)
    if cells is not None:
        compared = comparing.cells(folders[0], *cells)
    else:
        compared = comparing.side_by_side(folders, fail_below)
    written = None if out is None else comparing.write(compared, out)
    if as_json:
        typer.echo(comparing.to_json(compared), nl=False)
    else:
        typer.echo(written or compared.text)
    for one in compared.judged:
        if one.state != "holds":
            typer.echo(one.line, err=True)
    if fail_below is not None:
        raise typer.Exit(gate.EXIT_CODES[gate.verdict(compared.judged)])


app.command("import")(import_logs)
app.command("published")(published)


def main(argv: list[str] | None = None) -> int:
    """Exit code; the user's mistakes are one line on stderr and 2, Ctrl-C is 130."""
    return call(app, command("plots"), argv)


if __name__ == "__main__":
    sys.exit(main())
