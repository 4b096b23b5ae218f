"""python -m plots: turn run logs into figures, tables and a report, and pack them for citing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar, Literal

from bench import give_up

try:
    from bench.config import UsageError
    from bench.options import Shown, option
    from bench.shell import Command, Group, call
    from plots.foreign import ImportLogs, ShowPublished
    from plots.require import StudyPath
except ImportError as missing:
    give_up(missing)


class MakeReport(Command):
    """Write report.html, report.md, figures, summary.json and tables; print the study's result."""

    folder: StudyPath
    scaling: Path | None = option(
        None, "folder of another study, whose scaling curves stand beside the ratio"
    )
    out: Path | None = option(None, "folder to write to; default: STUDY")

    def run(self) -> None:
        from plots.report.write import make

        for line in make(self.folder, self.out or self.folder, self.scaling):
            print(line)


class DrawFigure(Command):
    """Draw one figure of a report by itself, for a paper or a slide."""

    example: ClassVar[str] = (
        "python -m plots figure ratio results/local -o ratio.pdf --preset paper"
    )
    name: str = option(
        ...,
        "as in the report's figures/; or collectives, of a folder of logs",
        shown=Shown("NAME"),
    )
    folder: StudyPath
    out: Path = option(..., "file to write: .svg, .pdf or .png", shown=Shown("-o"))
    preset: Literal["page", "paper"] = option("page", "paper: without title and foot")

    def run(self) -> None:
        from plots.report import figures
        from plots.report.figures.style import complete, strip
        from plots.report.write import analysed

        ending = self.out.suffix.removeprefix(".")
        if ending not in figures.ENDINGS:
            endings = ", .".join(figures.ENDINGS)
            raise UsageError(f"{self.out}: figures are written as .{endings}; name one")
        if self.name == "collectives":
            from plots.report.figures.collectives import draw_folder

            print(draw_folder(self.folder, self.out))
            return
        a = analysed(self.folder)
        drawn = figures.draw(a)
        if self.name not in drawn:
            raise UsageError(f"the study has no figure {self.name}; it has {', '.join(drawn)}")
        figure = drawn[self.name]
        if self.preset == "paper":
            strip(figure)
        else:
            complete(a, figure)
        print(figures.save_as(figure, self.out))


class PackBundle(Command):
    """Pack one study for citing: logs, job scripts, a fresh report and a manifest, in one archive.

    Runs may be missing: the report names what is wrong with the study.
    With --in-place, logs and job scripts are moved into STUDY/logs.tar.gz instead. All commands
    read them there, and `tar xzf` unpacks them.
    """

    folder: StudyPath
    out: Path | None = option(None, "archive, or folder for it; default: STUDY.tar.gz beside it")
    in_place: bool = option(False, "move the logs into the study's own logs.tar.gz")

    def run(self) -> None:
        from plots.bundle import archive_logs, bundle

        if self.in_place:
            print(archive_logs(self.folder))
        else:
            print(bundle(self.folder, self.out))


class ExportStudy(Command):
    """Write a study's comparisons as a LaTeX table for a paper."""

    form: Literal["latex"] = option(..., "of the file", shown=Shown("FORMAT"))
    folder: StudyPath
    out: Path = option(..., "file to write", shown=Shown("-o"))

    def run(self) -> None:
        from bench.study.disk import write_whole
        from plots.report.export import latex
        from plots.report.write import analysed

        print(write_whole(self.out, latex(analysed(self.folder)).encode()))


class CompareStudies(Command):
    """Put studies side by side: systems, dates, versions, images/s.

    With --fail-below R, each point's images/s in the last study are divided by those in the first.
    The exit code is 0 if every point's interval is at or above R, 1 if that of any point is wholly
    below R, and 2 for bad input. In all other cases, such as a missing point, it is 3.
    """

    folders: tuple[StudyPath, ...] = option(
        ..., "folders of studies, results/STUDY", min_length=1, shown=Shown("STUDY", nargs="*")
    )
    fail_below: float | None = option(
        None, "check the last study: images/s over those of the first", ge=0
    )
    as_json: bool = option(
        False, "print JSON, see plots/README, in place of Markdown", alias="json"
    )

    def run(self) -> int:
        from plots.report import compare, page

        compared = compare.side_by_side(self.folders, self.fail_below)
        as_page = page.markdown(compared.page).rstrip()
        print(json.dumps(compared.data, indent=1) if self.as_json else as_page)
        for one in compared.judged:
            if one.state != "holds":
                print(one.line, file=sys.stderr)
        return 0 if self.fail_below is None else compare.EXIT_CODES[compare.hold(compared.judged)]


PROGRAM = Group(
    "Turn run logs into statistics, figures and a report; needs no torch.",
    example="python -m plots report results/local",
    report=MakeReport,
    figure=DrawFigure,
    bundle=PackBundle,
    export=ExportStudy,
    compare=CompareStudies,
    **{"import": ImportLogs},
    published=ShowPublished,
)


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv`; return its exit code: 2 for a mistake, 130 after Ctrl-C."""
    return call("python -m plots", PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
