"""python -m plots import, and published: numbers that others measured, as commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.config import UsageError
from plots.require import require_folder


def import_logs(
    form: Annotated[
        str, typer.Argument(metavar="FORMAT", help="mxnet, csv, ...; see plots/README")
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="logs of that format")],
    backend: Annotated[
        str | None, typer.Option(help="what made them, for all lines that do not say")
    ] = None,
    world_size: Annotated[
        int | None, typer.Option(min=1, max=10**7, help="ranks, if no file says")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="images per rank: weak scaling")] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, help="images per step in all: strong scaling")
    ] = None,
    source: Annotated[str, typer.Option(help="who published them, and where")] = "",
    several: Annotated[
        Literal["runs", "ranks"] | None,
        typer.Option("--files", help="what several files of one size are"),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="of dawnbench: accuracy in percent, such as 94")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(help="of the format pattern: a regular expression; repeatable"),
    ] = None,
    marker: Annotated[
        str | None, typer.Option(help="of the format pattern: text of lines that must match")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder to write to")] = Path("results/imported"),
    values: Annotated[
        bool, typer.Option("--values", help="write a table of every number as well")
    ] = False,
    epochs: Annotated[
        bool, typer.Option("--epochs", help="print a Markdown table of the epochs")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="replace tables of those names")] = False,
) -> None:
    """Read other tools' logs into a table: one value a size, and how it was made."""
    if batch is not None and global_batch is not None:
        raise UsageError("batch and global-batch are two ways of scaling; give one")
    if (pattern or marker) and form != "pattern":
        raise UsageError(f"--pattern and --marker are of the format pattern, and none of {form}")
    if target is not None and form != "dawnbench":
        raise UsageError(f"--target is of the format dawnbench, and none of {form}")
    from plots.imports.observation import Options
    from plots.report.imported import bring_in

    options = Options(
        backend=backend,
        world_size=world_size,
        batch_per_rank=batch,
        global_batch=global_batch,
        source=source,
        files=several,
        target=target,
        patterns=pattern or (),
        marker=marker,
    )
    for line in bring_in(form, files, options, out, values=values, epochs=epochs, force=force):
        typer.echo(line)


def published(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="with tables of points (*.csv)")],
    study: Annotated[
        list[Path] | None,
        typer.Option(metavar="STUDY", help="ours to show beside them; repeatable"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder to write to; default: FOLDER")] = None,
) -> None:
    """Show imported and published numbers on a page, on both baselines, with ours beside them."""
    for each in (folder, *(study or [])):
        require_folder(each)
    from plots.report.published import page

    typer.echo(page(folder, study or [], out or folder))
