"""A table of points whose smallest worlds are fitted: what the model says of all of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.config import UsageError
from plots.imports.efficiency import scaled
from plots.predict import curves, table
from plots.predict.beyond import DOUBLING_SD
from plots.predict.curves import TableCurve, TableFitOptions
from plots.predict.table import Fit
from plots.report.bands import BAND, BESIDE, GRID, RowWithBand, crossing
from plots.report.columns import Column, csv, markdown_table
from plots.report.format import count, escape, rule
from plots.report.published import read_points

_FEW = 50.0  # effective draws, below which a band is made of too little


@dataclass(frozen=True, kw_only=True)
class Predicted(RowWithBand):
    """One row of a table, of its source."""

    number: int  # of its source, below the table
    source: str
    curve: str
    backend: str
    batch: float


def write(path: Path, options: TableFitOptions, form: str) -> tuple[str, list[str]]:
    """The page; or its rows as CSV, and the notes of the page. Raises UsageError where no curve
    has a row to be fitted.
    """
    every = list(curves.curves(scaled(read_points(path)), options))
    if not any(one.is_fitted.any() for one in every):
        limit = f"no curve of it has two rows of at most {options.fit_ranks} ranks"
        raise UsageError(f"{path}: {limit}; use a larger --fit-ranks, or another table")
    rows: list[Predicted] = []
    notes: list[str] = []
    for group in curves.groups(every):
        if not any(one.is_fitted.any() for one in group):
            notes += [
                f"{one.name}: no row of few enough ranks that is not superlinear: left out"
                for one in group
            ]
            continue
        fitted = table.fit([one.series for one in group], options.fit_ranks)
        for one in group:
            of_curve = list(_rows(one, fitted))
            rows += of_curve
            notes += [f"{one.name}: {note}" for note in one.notes]
            notes += [f"{one.name}: {note}" for note in _open(one, of_curve, fitted, options)]
        notes.append(_parameters(group, fitted))
        if fitted.effective < _FEW:
            notes.append(
                f"{group[0].name}: {fitted.effective:.0f} draws carry this fit: distrust it"
            )
    notes = [*dict.fromkeys(notes)]
    sources = dict(sorted((one.number, one.source) for one in every))  # notes name them by number
    if form == "csv":
        return csv(_COLUMNS, rows), [
            *(f"source {n}: {name}" for n, name in sources.items()),
            *notes,
        ]
    return _page(path, rows, notes, sources, options), []


def _rows(one: TableCurve, fitted: Fit) -> Iterator[Predicted]:
    draws = table.predict(one.series, fitted)
    low, middle, high = np.quantile(draws, BAND, axis=0)
    for i, ranks in enumerate(one.series.ranks):
        efficiency = float(one.series.efficiency[i])
        ideal = one.one_rank * ranks
        published = None if np.isnan(efficiency) else efficiency
        yield Predicted(
            number=one.number,
            source=one.source,
            curve=one.curve,
            backend=one.backend,
            batch=one.batch,
            world_size=int(ranks),
            use="fitted" if one.is_fitted[i] else "predicted",
            images_per_s=None if published is None else published * ideal,
            efficiency=published,
            predicted_images_per_s=float(middle[i] * ideal),
            predicted_efficiency=float(middle[i]),
            low=float(low[i]),
            high=float(high[i]),
        )


def _open(
    one: TableCurve, rows: Sequence[Predicted], fitted: Fit, options: TableFitOptions
) -> Iterator[str]:
    """Rows that the fit does not reach, and where the criterion is crossed."""
    wrong = [r for r in rows if r.use == "fitted" and r.inside is False]
    if missed := ", ".join(str(r.world_size) for r in wrong):
        yield f"the model does not explain {missed} ranks, although fitted to them"
    if options.criterion is not None:
        known = {*one.series.ranks[one.is_fitted]}  # what they miss goes on
        even = {n for n in GRID if curves.divides(one.curve, one.batch, n)}
        grid = np.array(sorted(even | known))
        efficiency = dict(zip(one.series.ranks, one.series.efficiency, strict=True))
        of_grid = np.array([efficiency[n] if n in known else np.nan for n in grid])
        draws = table.predict(replace(one.series, ranks=grid, efficiency=of_grid), fitted)
        inside = np.isin(grid, [*even])
        yield crossing(draws[:, inside], options.criterion, grid[inside])


def _parameters(group: Sequence[TableCurve], fitted: Fit) -> str:
    """What the fit says of the machine, with its band."""

    def band(name: str, scale: float, unit: str) -> str:
        low, _, high = np.quantile(fitted.draws[name], BAND) * scale
        return f"{fitted.median(name) * scale:.3g} [{low:.3g}, {high:.3g}] {unit}"

    rows = count(sum(int(one.is_fitted.sum()) for one in group), "row")
    numbers = ", ".join(dict.fromkeys(str(one.number) for one in group))
    passes = band("slowdown", 1.0, "times those of one rank")
    link = f"{band('bytes_per_s', 1e-9, 'GB/s')} and {band('latency_s', 1e6, 'us')}"
    rows_of = f"{numbers}, {group[0].backend}, {rows} fitted together"
    return f"{rows_of}: passes {passes}, {link} a step of the network"


_COLUMNS = (
    Column("number", "source", key=""),
    Column("source"),
    Column("curve", "curve"),
    Column("backend", "backend"),
    Column("batch", "batch", "{:.0f}".format),
    *BESIDE,
)


_HEAD = (
    "Rows of at most {most} ranks are fitted, against the one rank of each curve; others are "
    "predicted. *From* and *to* hold 90 % of the draws: what the fitted rows leave open of "
    "slowdown, bandwidth, latency, stragglers and a run's own scatter, and {doubling} more for "
    "each doubling beyond the fitted ranks. What the fitted rows of a curve miss goes on in its "
    "others, less so with each doubling.{verdict}"
)
_FOOT = (
    "The model: gradients in the order in which they are ready, one exchange after another beside "
    "both passes, by the fastest of ring, tree and two levels. It knows no input, no change of "
    "settings on the way and no other jobs on the network."
)


def _page(
    path: Path,
    rows: Sequence[Predicted],
    notes: Sequence[str],
    sources: Mapping[int, str],
    options: TableFitOptions,
) -> str:
    judged = [r for r in rows if r.use == "predicted" and r.inside is not None]
    inside = sum(r.inside is True for r in judged)
    others = count(len(judged), "published row")
    head = _HEAD.format(
        most=options.fit_ranks,
        doubling=rule(DOUBLING_SD),
        verdict=f" Of {others} that were not fitted, {inside} are in the band." if judged else "",
    )
    bullets = "\n".join(f"- {escape(note)}." for note in notes)
    parts = (f"# Predicted from {escape(path.name)}", head, markdown_table(_COLUMNS, rows))
    named = "\n".join(f"{n}. {escape(source)}" for n, source in sources.items())
    return "\n\n".join([*parts, bullets, _FOOT, "## Sources", named]) + "\n"
