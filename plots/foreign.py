"""python -m plots import, and published: numbers that others measured, as commands."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bench.config import UsageError
from bench.options import Shown, option
from bench.shell import Command
from plots.require import ExistingFolder


class ImportLogs(Command):
    """Read other tools' logs into a table: one value a size, and how it was made."""

    form: str = option(..., "mxnet, csv, ...; see plots/README", shown=Shown("FORMAT"))
    logs: tuple[Path, ...] = option(..., "logs of that format", shown=Shown("FILE", nargs="*"))
    backend: str | None = option(None, "what made them, for all lines that do not say")
    world_size: int | None = option(None, "ranks, if no file says", ge=1, le=10**7)
    batch: int | None = option(None, "images per rank: weak scaling", ge=1)
    global_batch: int | None = option(None, "images per step in all: strong scaling", ge=1)
    source: str = option("", "who published them, and where")
    files: Literal["runs", "ranks"] | None = option(None, "what several files of one size are")
    target: float | None = option(None, "of dawnbench: accuracy in percent, such as 94")
    pattern: tuple[str, ...] = option(
        (), "of the format pattern: a regular expression; repeatable", shown=Shown(action="append")
    )
    marker: str | None = option(None, "of the format pattern: text of lines that must match")
    skip: int = option(0, "lines to leave out at the beginning of each run", ge=0)
    out: Path = option(Path("results/imported"), "folder to write to")
    values: bool = option(False, "write a table of every number as well")
    epochs: bool = option(False, "print a Markdown table of the epochs")
    force: bool = option(False, "replace tables of those names")

    def run(self) -> None:
        if self.batch is not None and self.global_batch is not None:
            raise UsageError("batch and global-batch are two ways of scaling; give one")
        for options, used, form in (
            ("--pattern and --marker are", self.pattern or self.marker, "pattern"),
            ("--target is", self.target is not None, "dawnbench"),
        ):
            if used and self.form != form:
                raise UsageError(f"{options} of the format {form}, and none of {self.form}")
        from plots.imports.observation import ImportOptions
        from plots.report.imported import bring_in

        options_of_lines = ImportOptions(
            backend=self.backend,
            world_size=self.world_size,
            batch_per_rank=self.batch,
            global_batch=self.global_batch,
            source=self.source,
            files=self.files,
            target=self.target,
            patterns=self.pattern,
            marker=self.marker,
            skip=self.skip,
        )
        tables = {"values": self.values, "epochs": self.epochs, "force": self.force}
        for line in bring_in(self.form, [*self.logs], options_of_lines, self.out, **tables):
            print(line)


class ShowPublished(Command):
    """Show imported and published numbers on a page, on both baselines, with ours beside them."""

    folder: ExistingFolder = option(..., "with tables of points (*.csv)", shown=Shown("FOLDER"))
    study: tuple[ExistingFolder, ...] = option(
        (), "ours to show beside them; repeatable", shown=Shown(action="append", metavar="STUDY")
    )
    out: Path | None = option(None, "folder to write to; default: FOLDER")

    def run(self) -> None:
        from plots.report.published import page

        print(page(self.folder, [*self.study], self.out or self.folder))
