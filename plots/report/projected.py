"""A study beyond its ranks: each curve's prediction, who is faster, and what would help most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from bench.config import UsageError
from plots.predict import measured
from plots.predict.beyond import DOUBLING_SD, Factors, Projection, helps, project, solve
from plots.predict.costs import Array
from plots.predict.curves import uneven_ranks
from plots.predict.measured import StudyCurve, StudyFitOptions
from plots.report.bands import BAND, BESIDE, GRID, NO_GRID, RowWithBand, crossing
from plots.report.columns import Column, csv, markdown_table
from plots.report.format import escape, rule


@dataclass(frozen=True, kw_only=True)
class ProjectedRow(RowWithBand):
    """One number of ranks of a curve; `exposed_seconds` of a step no pass hides."""

    name: str
    curve: str
    images: int
    exposed_seconds: float
    exposed_low: float
    exposed_high: float
    doubt: str  # why the model may not hold there; '' where nothing says so


@dataclass(frozen=True, kw_only=True)
class FasterRow:
    """Images/s of one curve over those of another with the same work."""

    name: str
    other: str
    curve: str
    images: int
    world_size: int
    ratio: float
    low: float
    high: float
    doubt: str  # of one of them

    @property
    def verdict(self) -> str:
        """Which, where the band leaves out 1 and nothing is doubted."""
        if self.doubt:
            return "cannot tell"
        if self.low > 1:
            return f"{self.name} is faster"
        return f"{self.other} is faster" if self.high < 1 else "cannot tell"


@dataclass(frozen=True, kw_only=True)
class HelpRow:
    """One change by itself, and what it adds to the efficiency."""

    name: str
    curve: str
    world_size: int
    change: str
    points: float  # of efficiency, in percent
    doubt: str  # of these ranks


def write(folder: Path, options: StudyFitOptions, form: str) -> tuple[str, list[str]]:
    """The page; or its rows as CSV, and the notes of the page. Raises UsageError where no curve
    can be predicted.
    """
    every, notes = measured.curves(folder, options)
    if not every:
        raise UsageError(f"{folder}: no curve can be predicted: {'; '.join(notes)}")
    factors = [solve(one.model, one.draws) for one in every]
    projections = [
        project(one.model, one.draws, solved, _ranks(one, options), np.random.default_rng(seed))
        for seed, (one, solved) in enumerate(zip(every, factors, strict=True))
    ]
    rows = [row for one, p in zip(every, projections, strict=True) for row in _rows(one, p)]
    for one, solved in zip(every, factors, strict=True):
        title = f"{one.name}, {one.curve} scaling"
        uneven = uneven_ranks(one.images, [n for n in options.ranks if not one.shares(n)])
        notes += [f"{title}: {note}" for note in (*uneven, *one.notes, _words(solved))]
        if options.criterion is not None:
            notes += [f"{title}: {_crossing(one, solved, options.criterion)}"]
    notes = [*dict.fromkeys(notes)]
    if form == "csv":
        return csv(_COLUMNS, rows), notes
    pairs = [*_faster(every, projections)]
    largest = [float(p.ranks[-1]) for p in projections]
    changes = [row for each in zip(every, factors, largest, strict=True) for row in _helps(*each)]
    return _page(folder, rows, pairs, changes, notes, options), []


def _ranks(one: StudyCurve, options: StudyFitOptions) -> Array:
    """Those measured, and those asked for that have equally many images."""
    targets = (n for n in options.ranks if n > 1 and one.shares(n))
    return np.array(sorted({*one.step_s, *targets}), float)


def _crossing(one: StudyCurve, factors: Factors, criterion: float) -> str:
    """Where efficiency falls below the criterion, and from which ranks on that is in doubt."""
    grid = np.array([n for n in GRID if one.shares(int(n))])
    if not len(grid):
        return NO_GRID
    on_grid = project(one.model, one.draws, factors, grid, np.random.default_rng(0))
    words = crossing(on_grid.efficiency, criterion, grid)
    first, doubt = next(((n, why) for n in grid if (why := _doubt(one, n))), (0, ""))
    return f"{words}; in doubt from {first:,.0f} ranks on: {doubt}" if doubt else words


def _rows(one: StudyCurve, projection: Projection) -> Iterator[ProjectedRow]:
    low, middle, high = np.quantile(projection.efficiency, BAND, axis=0)
    exposed = np.quantile(projection.exposed_s, BAND, axis=0)
    strong = one.curve == "strong"
    for i, p in enumerate(projection.ranks):
        ranks = int(p)
        ideal_s = one.alone_s / (ranks if strong else 1)
        images = one.images * (1 if strong else ranks)
        step_s = one.step_s.get(ranks)
        yield ProjectedRow(
            name=one.name,
            curve=one.curve,
            images=one.images,
            world_size=ranks,
            use="fitted" if p in one.model.fitted_ranks else "predicted",
            images_per_s=None if step_s is None else images / step_s,
            efficiency=None if step_s is None else ideal_s / step_s,
            predicted_images_per_s=float(images / ideal_s * middle[i]),
            predicted_efficiency=float(middle[i]),
            low=float(low[i]),
            high=float(high[i]),
            exposed_seconds=float(exposed[1, i]),
            exposed_low=float(exposed[0, i]),
            exposed_high=float(exposed[2, i]),
            doubt=_doubt(one, p),
        )


def _doubt(one: StudyCurve, ranks: float) -> str:
    """Of a number of ranks: as measured, else as it would be, else that of the largest below."""
    if int(ranks) in one.step_s:
        return one.doubts.get(int(ranks), "")
    if one.model.shared is not None:
        share = float(one.model.shared.longest_wait(np.array([ranks]))[0])
        if share > measured.WAITS:
            return measured.waiting(share)
    largest = max((n for n in one.step_s if n < ranks), default=0)
    return f"at {largest} ranks {one.doubts[largest]}" if largest in one.doubts else ""


def _faster(every: Sequence[StudyCurve], projections: Sequence[Projection]) -> Iterator[FasterRow]:
    """Every two curves of the same work over one transport, the later in the study above."""
    for (a, of_a), (b, of_b) in combinations(zip(every, projections, strict=True), 2):
        if _work(a) != _work(b):
            continue
        for ranks in np.intersect1d(of_a.ranks, of_b.ranks):
            before, after = (p.step_s[:, [*p.ranks].index(ranks)] for p in (of_a, of_b))
            low, ratio, high = np.quantile(before / after, BAND)
            yield FasterRow(
                name=b.name,
                other=a.name,
                curve=a.curve,
                images=a.images,
                world_size=int(ranks),
                ratio=float(ratio),
                low=float(low),
                high=float(high),
                doubt=_doubt(a, ranks) or _doubt(b, ranks),
            )


def _work(one: StudyCurve) -> tuple[object, ...]:
    return one.curve, one.images, one.point.cell.partition("/")[2], one.point.variant


def _helps(one: StudyCurve, factors: Factors, ranks: float) -> Iterator[HelpRow]:
    """What helps most first."""
    for change, gain in sorted(helps(one.model, factors, ranks), key=lambda each: -each[1]):
        yield HelpRow(
            name=one.name,
            curve=one.curve,
            world_size=int(ranks),
            change=change,
            points=100 * gain,
            doubt=_doubt(one, ranks),
        )


def _words(factors: Factors) -> str:
    """What was solved, with its band."""
    wrapper, overlap, exchange = (
        "{1:.3f} [{0:.3f}, {2:.3f}]".format(*np.quantile(draws, BAND))
        for draws in (factors.wrapper, factors.overlap, factors.exchange)
    )
    one_rank = f"passes take {wrapper} times those of a plain process on one rank"
    beside = f"{one_rank}, and {overlap} times that beside an exchange"
    if not np.any(factors.exchange != 1.0):  # it was not solved, or added nothing
        return beside
    return f"{beside}, whose reductions take {exchange} times those of the link"


_COLUMNS = (
    Column("name", "curve of"),
    Column("curve", "scaling"),
    Column("images", "images"),
    *BESIDE,
    Column("exposed_seconds", "exposed (s)", "{:.3g}".format),
    Column("exposed_low", "from", "{:.3g}".format),
    Column("exposed_high", "to", "{:.3g}".format),
    Column("doubt", "doubt"),
)
_FASTER = (
    Column("name", "images/s of"),
    Column("other", "over"),
    Column("curve", "scaling"),
    Column("images", "images"),
    Column("world_size", "ranks", each=True),
    Column("ratio", "ratio", "{:.3f}".format),
    Column("low", "from", "{:.3f}".format),
    Column("high", "to", "{:.3f}".format),
    Column("verdict", "verdict"),
    Column("doubt", "doubt"),
)
_HELPS = (
    Column("name", "curve of"),
    Column("curve", "scaling"),
    Column("world_size", "ranks"),
    Column("change", "change", each=True),
    Column("points", "points of efficiency", "{:+.1f}".format),
    Column("doubt", "doubt"),
)
_HEAD = (
    "Runs of at most {most} ranks are fitted, against a plain process. *From* and *to* hold 90 % "
    "of {draws} draws: launches, fits of the link, waits of ranks that share cores, and {doubling} "
    "for each doubling beyond the fitted ranks; those of exposed seconds hold launches and fits "
    "alone. What has a *doubt* is not fitted, and no band is "
    "claimed there.{verdict}"
)
_FOOT = (
    "The model: gradients in the order in which they are ready, one exchange after another beside "
    "both passes. How much longer passes take beside it is solved from the fitted ranks and stays. "
    "It knows no input, no change of settings on the way and no other jobs on the network."
)


def _page(
    folder: Path,
    rows: Sequence[ProjectedRow],
    pairs: Sequence[FasterRow],
    changes: Sequence[HelpRow],
    notes: Sequence[str],
    options: StudyFitOptions,
) -> str:
    judged = [r for r in rows if r.use == "predicted" and r.inside is not None and not r.doubt]
    inside = sum(r.inside is True for r in judged)
    verdict = f" Of {len(judged)} measured rows that were not fitted, {inside} are in the band."
    head = _HEAD.format(
        most=options.fit_ranks,
        draws=measured.DRAWS,
        doubling=rule(DOUBLING_SD),
        verdict=verdict if judged else "",
    )
    sections = [f"# Predicted from {escape(folder.name)}", head, markdown_table(_COLUMNS, rows)]
    if pairs:
        sections += ["## Who is faster", markdown_table(_FASTER, pairs)]
    sections += ["## What would help most", markdown_table(_HELPS, changes)]
    bullets = "\n".join(f"- {escape(note)}." for note in notes)
    return "\n\n".join([*sections, "## What it rests on", bullets, _FOOT]) + "\n"
