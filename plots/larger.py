"""python -m plots predict: larger worlds of a study, or of a published table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from bench.config import UsageError
from bench.options import Shown, option, split_commas
from bench.shell import Command
from plots.require import NewFile, require_folder

_OF_TABLES = ("ranks_per_node", "cycle_ms", "fusion_mib")


class PredictRanks(Command):
    """Predict larger worlds: of a study from its small ones, or of a published table (--from).

    A study's step, launches and observed ranks are its logs', and the link is fitted to its
    collectives/, logs of `python -m bench collectives` on the same machine, unless --link states
    one.
    """

    example: ClassVar[str] = "python -m plots predict results/STUDY --ranks 64,1024"
    study: Path | None = option(
        None, "folder of a study; or --from", shown=Shown("STUDY", nargs="?")
    )
    table: Path | None = option(
        None, "table of points: .csv, as `plots import` writes", alias="from"
    )
    ranks: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10**6)], ...],
        BeforeValidator(split_commas),
        Shown(metavar="128,512"),
    ] = option((), "worlds to predict beside those measured")
    fit_ranks: int = option(16, "largest world that is fitted", ge=2, le=10**7)
    link: Path | None = option(None, "of a study: TOML file of a stated link")
    ranks_per_node: int = option(1, "of a table: ranks of a node", ge=1, le=2**16)
    cycle_ms: float = option(1.0, "of a table: between ticks of what waits for them", gt=0, le=1000)
    fusion_mib: float = option(128.0, "of a table: most that a tick joins", gt=0, le=2**20)
    profile: Path | None = option(None, "timeline of the model; default: by its name")
    criterion: float | None = option(None, "efficiency in percent, such as 75", gt=0, le=100)
    form: Literal["markdown", "csv"] = option("markdown", "of what is written", alias="format")
    out: NewFile | None = option(None, "file to write; default: print", shown=Shown("-o"))

    def run(self) -> None:
        from bench.study.disk import write_whole
        from plots.report.format import clean

        if (self.study is None) == (self.table is None):
            raise UsageError("name either a study's folder, results/STUDY, or --from TABLE.csv")
        text, notes = self._of_study(self.study) if self.study else self._of_table()
        for note in notes:
            print(f"note: {clean(note, limit=1000)}", file=sys.stderr)
        print(write_whole(self.out, text.encode()) if self.out else text.rstrip("\n"))

    def _of_study(self, study: Path) -> tuple[str, list[str]]:
        if used := [name for name in _OF_TABLES if name in self.model_fields_set]:
            named = used[0].replace("_", "-")
            raise UsageError(
                f"--{named} is of --from: a study's logs and link say it; leave it out"
            )
        from plots.predict.measured import StudyFitOptions
        from plots.report.projected import write

        options = StudyFitOptions(**self._alike(), link=self.link)
        return write(require_folder(study), options, self.form)

    def _of_table(self) -> tuple[str, list[str]]:
        if self.link is not None:
            raise UsageError("--link is of a study: of a table the link is fitted; leave it out")
        from plots.predict.curves import TableFitOptions
        from plots.predict.stream import Cycles
        from plots.report.predicted import write

        assert self.table is not None
        cycles = Cycles(cycle_s=self.cycle_ms / 1e3, fusion_bytes=self.fusion_mib * 2**20)
        options = TableFitOptions(
            **self._alike(), ranks_per_node=self.ranks_per_node, cycles=cycles
        )
        return write(self.table, options, self.form)

    def _alike(self) -> dict[str, Any]:
        """What both are fitted with."""
        alike = self.model_dump(include={"fit_ranks", "ranks", "profile"})
        return {**alike, "criterion": self.criterion and self.criterion / 100}
