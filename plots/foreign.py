"""python -m plots import, and published: numbers that others measured, as commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bench.config import UsageError
from bench.options import Shown
from bench.shell import Command
from plots.require import ExistingFolder


class ImportLogs(Command):
    """Read other tools' logs into a table: one value a size, and how it was made."""

    form: Annotated[str, Shown("FORMAT")] = Field(description="mxnet, csv, ...; see plots/README")
    logs: Annotated[tuple[Path, ...], Shown("FILE", nargs="*")] = Field(
        description="logs of that format"
    )
    backend: str | None = Field(None, description="what made them, for all lines that do not say")
    world_size: int | None = Field(None, description="ranks, if no file says", ge=1, le=10**7)
    batch: int | None = Field(None, description="images per rank: weak scaling", ge=1)
    global_batch: int | None = Field(
        None, description="images per step in all: strong scaling", ge=1
    )
    source: str = Field("", description="who published them, and where")
    files: Literal["runs", "ranks"] | None = Field(
        None, description="what several files of one size are"
    )
    target: float | None = Field(None, description="of dawnbench: accuracy in percent, such as 94")
    pattern: Annotated[tuple[str, ...], Shown(action="append")] = Field(
        (), description="of the format pattern: a regular expression; repeatable"
    )
    marker: str | None = Field(
        None, description="of the format pattern: text of lines that must match"
    )
    out: Path = Field(Path("results/imported"), description="folder to write to")
    values: bool = Field(False, description="write a table of every number as well")
    epochs: bool = Field(False, description="print a Markdown table of the epochs")
    force: bool = Field(False, description="replace tables of those names")

    def run(self) -> None:
        if self.batch is not None and self.global_batch is not None:
            raise UsageError("batch and global-batch are two ways of scaling; give one")
        for options, used, form in (
            ("--pattern and --marker are", self.pattern or self.marker, "pattern"),
            ("--target is", self.target is not None, "dawnbench"),
        ):
            if used and self.form != form:
                raise UsageError(f"{options} of the format {form}, and none of {self.form}")
        from plots.imports.observation import Options
        from plots.report.imported import bring_in

        options_of_lines = Options(
            backend=self.backend,
            world_size=self.world_size,
            batch_per_rank=self.batch,
            global_batch=self.global_batch,
            source=self.source,
            files=self.files,
            target=self.target,
            patterns=self.pattern,
            marker=self.marker,
        )
        tables = {"values": self.values, "epochs": self.epochs, "force": self.force}
        for line in bring_in(self.form, [*self.logs], options_of_lines, self.out, **tables):
            print(line)


class ShowPublished(Command):
    """Show imported and published numbers on a page, on both baselines, with ours beside them."""

    folder: Annotated[ExistingFolder, Shown("FOLDER")] = Field(
        description="with tables of points (*.csv)"
    )
    study: Annotated[tuple[ExistingFolder, ...], Shown(action="append", metavar="STUDY")] = Field(
        (), description="ours to show beside them; repeatable"
    )
    out: Path | None = Field(None, description="folder to write to; default: FOLDER")

    def run(self) -> None:
        from plots.report.published import page

        print(page(self.folder, [*self.study], self.out or self.folder))
