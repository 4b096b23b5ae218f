"""The page's sections: every table with its title, columns, rows and where else it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from plots.analyse.study import Analysis
from plots.report import quality, tables
from plots.report.answer import versus
from plots.report.columns import Column, csv, markdown_table, records

_RUN = ["log", "cell", "world_size", "samples_per_rank", "block", "images_per_s"]


@dataclass(frozen=True)
class Exhibit:
    """A table of the page below its prose, or prose alone; a table without rows has neither."""

    title: str | Callable[[Analysis], str]  # of its section, which those in a row share; '' of none
    columns: Sequence[Column] | Callable[[Analysis], Sequence[Column]] = ()
    rows: str | Callable[[Analysis], Sequence[Any]] = ""  # an attribute, such as 'exchange.costs'
    key: str | None = None  # in summary.json; None: the attribute's name
    prose: str = ""  # its block of prose.md.j2; '': the attribute's name, where there is one
    csv: str = ""  # the file that has all of its rows
    most: int = 10_000  # rows on the page; the others are in `overflow`
    overflow: str = ""
    marked: bool = True  # each row says whether it is emulated, and the title if all are
    folded: bool = False  # in report.html alone

    @property
    def place(self) -> str:
        """Its key in summary.json, '' where it is not there."""
        return (self.rows if isinstance(self.rows, str) else "") if self.key is None else self.key

    @property
    def block(self) -> str:
        return self.prose or (self.rows.replace(".", "_") if isinstance(self.rows, str) else "")

    def heading(self, a: Analysis) -> str:
        title = self.title if isinstance(self.title, str) else self.title(a)
        return f"{title} (emulated)" if self.columns and self.marked and a.emulated() else title

    def rows_of(self, a: Analysis) -> Sequence[Any]:
        if callable(self.rows):
            return self.rows(a)
        names = self.rows.split(".")
        rows: Any = reduce(lambda x, name: x and getattr(x, name), names, a) if self.rows else ()
        return rows or ()

    def columns_of(self, a: Analysis) -> Sequence[Column]:
        return self.columns(a) if callable(self.columns) else self.columns

    def table(self, a: Analysis) -> str:
        """Write the table in Markdown; '' without rows."""
        rows, columns = self.rows_of(a), self.columns_of(a)
        if not (rows and columns):
            return ""
        more = len(rows) - self.most
        end = f"\n\n{more} more in {self.overflow}." if more > 0 else ""
        return markdown_table(columns, rows[: self.most]) + end


def _runs(a: Analysis) -> Sequence[Any]:
    return [*a.loaded.runs[_RUN].itertuples(index=False)]


# A new table is a row here, a new column one of its columns: page, summary.json and CSV follow.
_PAGE = (
    Exhibit("Answer", prose="answer"),
    Exhibit(versus, tables.ratios, "comparisons", csv="comparisons.csv"),
    Exhibit("Figures", prose="figures"),
    Exhibit("Variants", tables.GAINS, "gains"),
    Exhibit("Exchange", tables.COSTS, "exchange.costs"),
    Exhibit("Exchange", tables.BREAKDOWNS, "exchange.breakdowns"),
    Exhibit("Exchange", tables.OVERLAPS, "exchange.overlaps"),
    Exhibit("Training to a target", tables.TRAINED, "trained"),
    Exhibit("Training to a target", tables.by_epoch, "trained", "", "by_epoch"),
    Exhibit("Each rank by itself", tables.SERVED, "served"),
    Exhibit("Throughput", tables.throughput, "throughput", csv="points.csv"),
    Exhibit("Scaling", tables.SCALING, "efficiency", "scaling"),
    Exhibit("Scaling", tables.BOUNDS, "bounds"),
    Exhibit("Data quality", prose="quality"),
    Exhibit("Data quality", quality.GAPS, "gaps", marked=False),
    Exhibit("Data quality", quality.LOGS, "loaded.unusable", "unusable", marked=False),
    Exhibit("Data quality", quality.LOGS, "loaded.superseded", "superseded", marked=False),
    Exhibit("Methods", prose="methods"),
    Exhibit("Limits", prose="limits"),
    Exhibit("Machine and versions", prose="provenance"),
    Exhibit("Files", prose="files"),
)
_DETAILS = (
    Exhibit("Checks beside the verdicts", tables.CHECKS, "comparisons", prose="checks"),
    Exhibit("Step times", quality.STEP_TIMES, "step_times"),
    Exhibit("Step times", quality.TRENDS, "trends"),
    Exhibit("Not compared", quality.NOT_COMPARED, "not_compared", marked=False),
    Exhibit("Raw logs", quality.RAW, _runs, prose="logs", most=500, overflow="runs.csv"),
    Exhibit("How each number is made", prose="made"),
)  # fmt: skip
EXHIBITS = (*_PAGE, *(replace(one, folded=True) for one in _DETAILS))


def summarised(a: Analysis, data: dict[str, Any]) -> None:
    """Put every table at its key, unrounded; what is None in `data` stays so."""
    for one in EXHIBITS:
        place, _, name = one.place.rpartition(".")
        home = data[place] if place else data
        if name and home is not None:
            home[name] = records(_all_columns(a, one), one.rows_of(a))


def files(a: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the tables as CSV, by file name."""
    for one in EXHIBITS:
        rows = one.rows_of(a) if one.csv else ()
        if rows or (one.csv and one.place):
            yield one.csv, csv(_all_columns(a, one), rows)


def _all_columns(a: Analysis, exhibit: Exhibit) -> Sequence[Column]:
    """List the columns of all exhibits of one place, which show parts of one list on the page."""
    place = exhibit.place
    shared = [one for one in EXHIBITS if one is exhibit or (place and one.place == place)]
    columns = [column for one in shared for column in one.columns_of(a)]
    return tables.marked(a, columns) if exhibit.marked else columns
