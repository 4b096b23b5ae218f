"""Import of other tools' logs: module `text` reads their numbers, and `points` averages these."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bench.options import Shown, option
from bench.shell import Command


class ImportOptions(Command):
    """Options of an import: the logs, their format, and what the lines do not say."""

    form: str = option(..., "mxnet, csv, ...; see plots/README", shown=Shown("FORMAT"))
    logs: tuple[Path, ...] = option(..., "logs of that format", shown=Shown("FILE", nargs="*"))
    backend: str | None = option(None, "what made them, for all lines that do not say")
    world_size: int | None = option(None, "ranks, if no file says", ge=1, le=10**7)
    batch_per_rank: int | None = option(None, "images per rank: weak scaling", ge=1, alias="batch")
    global_batch: int | None = option(None, "images per step in all: strong scaling", ge=1)
    source: str = option("", "who published them, and where")
    files: Literal["runs", "ranks"] | None = option(None, "what several files of one size are")
    pattern: tuple[str, ...] = option(
        (), "of the format pattern: a regular expression; repeatable", shown=Shown(action="append")
    )
    skip: int = option(0, "lines to leave out at the beginning of each run", ge=0)
    out: Path = option(Path("results/imported"), "folder to write to")
    epochs: bool = option(False, "print a Markdown table of the epochs")
    force: bool = option(False, "replace a table of that name")
