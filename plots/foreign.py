"""The commands `import` and `published` of python -m plots, for numbers that others measured."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.config import UsageError
from bench.options import Shown, option
from bench.shell import Command
from bench.study.disk import write_whole
from bench.study.words import count
from plots.imports import ImportOptions
from plots.require import ExistingFolder


class ImportLogs(ImportOptions):
    """Read other tools' logs into a table: one mean per quantity, number of ranks and batch."""

    def run(self) -> None:
        if self.batch_per_rank is not None and self.global_batch is not None:
            raise UsageError("batch and global-batch are two ways of scaling; give one")
        if self.pattern and self.form != "pattern":
            raise UsageError(f"--pattern is of the format pattern, and not of {self.form}")
        from plots.imports.points import by_epoch, find_format, read

        reader = find_format(self)
        name = "-".join(dict.fromkeys(path.stem for path in self.logs))[:100]
        values, points, warnings = read(reader, self.logs, self, self.source or name)
        path, data = self.out / f"{name}.csv", points.to_csv(index=False, lineterminator="\n")
        changed = path.exists() and path.read_text() != data
        if path in self.logs or (changed and not self.force):
            raise UsageError(f"{path} is there already; choose another --out, or --force")
        write_whole(path, data)
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
        if self.epochs:
            print(*by_epoch(values, reader), sep="\n")
            return
        for row in points.to_dict("records"):
            size = f"{row['backend']}, {count(int(row['world_size']), 'rank')}"
            how = f"n = {row['n']}; {row['reducer']}; no interval"
            print(f"{size}: {row['quantity']} {row['value']:.6g} ({how})")
        notes = [*reader.notes]
        if not self.source:
            notes.append(f"the source is {name}; baselines are looked for in one --source")
        print(*(f"note: {note}" for note in notes), path, sep="\n")


class ShowPublished(Command):
    """Write published.md: imported and published numbers, their efficiencies, and our studies."""

    folder: ExistingFolder = option(..., "with tables of points (*.csv)", shown=Shown("FOLDER"))
    study: tuple[ExistingFolder, ...] = option(
        (), "ours to show beside them; repeatable", shown=Shown(action="append", metavar="STUDY")
    )
    out: Path | None = option(None, "folder to write to; default: FOLDER")

    def run(self) -> None:
        from plots.report.published import page

        print(page(self.folder, [*self.study], self.out or self.folder))
