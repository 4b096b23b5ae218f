"""Figures of one study as SVG and PNG: only here is matplotlib known, and no number computed."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from bench.config import UsageError
from bench.study.disk import write_whole
from bench.study.verdict import Comparison
from bench.study.points import Point, PointRow
from plots.analyse.scaling import size
from plots.analyse.study import Analysis
from plots.analyse.variants import Variant, beside
from plots.report import answer
from plots.report.axes import PRESETS, Preset, drawn_as
from plots.report.figures import curves, exchange, ratio, trainings
from plots.report.figures.hover import with_names
from plots.report.figures.style import STYLE, drawing
from plots.report.format import file_names

# formats, and what of the moment each would hold
ENDINGS = {"svg": "Date", "png": "Software", "pdf": "CreationDate"}
DPI = 200


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, and what it shows for those who do not see it."""

    name: str
    svg: str
    alt: str
    narrow: str = ""  # the same for a phone, where it answers the page's question


def draw(a: Analysis, preset: Preset = PRESETS["page"], only: str = "") -> dict[str, Figure]:
    """Draw all figures the study has points for, or one, by file name without ending.

    Raises UsageError for one that is not there, and for names that its legend has not.
    """
    drawings = dict(_each(a))
    if only and only not in drawings:
        raise UsageError(f"the study has no figure {only!r}; it has {', '.join(drawings)}")
    with drawn_as(preset), drawing(preset):
        drawn = {name: drawings[name]() for name in ([only] if only else drawings)}
    names = {x for f in drawn.values() for ax in f.axes for x in ax.get_legend_handles_labels()[1]}
    if unknown := [name for name in preset.labels if name not in names]:
        has = ", ".join(sorted(names)) or "no legend"
        raise UsageError(f"--label {unknown[0]}=...: the figure's legend has {has}")
    return drawn


def _each(a: Analysis) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Declare every figure, a new one too: for which rows it is drawn, and its name."""
    # the figure that the page begins with is the first, and of the comparison that it tells
    ratios: dict[tuple[Variant], list[Comparison]] = defaultdict(list)
    for c in answer.by_weight(a):
        ratios[c.variant,].append(c)
    for page, name in file_names("ratio-by-size", ratios):
        if ratio.curves_of(ratios[page]):
            yield name, partial(ratio.against_size, a, ratios[page])
    # what slept is no row beside what computed
    kinds = {page: ("emulated" if a.emulated(page[0]) else "real",) for page in ratios}
    for kind, name in file_names("ratio", kinds.values()):
        yield (
            name,
            partial(ratio.draw, a, [rows for page, rows in ratios.items() if kinds[page] == kind]),
        )
    yield from _exchange(a)
    yield from _accuracy(a)
    for name, throughputs in _series(a.throughput):
        if len({size(r.curve, r.point) for r in throughputs}) > 1:
            yield f"{name}-throughput", partial(curves.throughput, a, throughputs)
    for name, scaled in _series(a.efficiency):
        ending = "efficiency" if scaled[0].curve == "weak" else "speedup"
        yield f"{name}-{ending}", partial(curves.scaling, a, scaled)


def _accuracy(a: Analysis) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Yield a page for each number of ranks of the frameworks; one plain process is on each."""
    key = attrgetter("variant", "samples_per_step", "world_size")
    pages = {key(t.point) for t in a.trained if t.point.world_size > 1}
    pages = pages or {key(t.point) for t in a.trained}
    for page, name in file_names("accuracy", sorted(pages)):
        alone = beside("single", page[0]), page[1], 1
        wanted = {"single": alone}
        rows = [t for t in a.trained if key(t.point) == wanted.get(t.point.cell, page)]
        yield (
            name,
            partial(trainings.accuracy, a, sorted(rows, key=lambda t: t.point.cell != "single")),
        )


def _exchange(a: Analysis) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Yield a page for each size: its cells and variants are rows."""

    def of(p: Point) -> tuple[int, int]:
        return p.world_size, p.samples_per_rank

    if a.exchange is None:
        return
    parts, overlaps = a.exchange.breakdowns, a.exchange.overlaps
    for page, name in file_names("breakdown", sorted({of(r.point) for r in parts})):
        rows = [r for r in parts if of(r.point) == page]
        yield name, partial(exchange.breakdown, a, rows, a.exchange.costs)
    for page, name in file_names("overlap", sorted({of(r.point) for r in overlaps})):
        yield name, partial(exchange.overlap, a, [r for r in overlaps if of(r.point) == page])


def save(figures: dict[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as .svg and .png, without dates: the same numbers give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [folder / f"{name}.{ending}" for name in figures for ending in ("svg", "png")]
    return [save_as(figures[path.stem], path) for path in names]


def save_as(figure: Figure, path: Path, dpi: int = DPI) -> Path:
    """Write one figure in the format that the file's name ends in."""
    return write_whole(path, _data(figure, path.suffix[1:], dpi))


def _data(figure: Figure, ending: str, dpi: int = DPI) -> bytes:
    data = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(data, format=ending, dpi=dpi, metadata={ENDINGS[ending]: None})
    drawn = data.getvalue()
    return with_names(drawn.decode()).encode() if ending == "svg" else drawn


def pictures(
    a: Analysis, figures: dict[str, Figure], folder: Path, answering: str = ""
) -> Iterator[Picture]:
    """Read the figures as they were saved, each with its title and conditions in words.

    The one that answers is there in the width of a phone too.
    """
    for name, figure in figures.items():
        alt, narrow = ". ".join(text.get_text() for text in figure.texts), ""
        if name == answering:
            narrow = _data(draw(a, PRESETS["phone"], name)[name], "svg").decode()
        yield Picture(name, (folder / f"{name}.svg").read_text(), alt.replace("\n", " "), narrow)


def _series(rows: Sequence[PointRow]) -> Iterator[tuple[str, list[PointRow]]]:
    """Split rows by figure: one curve, variant and fixed size each; `single` joins every one."""

    def key(r: PointRow) -> tuple[Variant, int]:
        return r.point.variant, r.point.fixed(r.curve)

    for curve in dict.fromkeys(r.curve for r in rows):
        on = [r for r in rows if r.curve == curve]
        pages = [key(r) for r in on if r.point.cell != "single"]
        for page, name in file_names(curve, pages):
            wanted = {"single": (beside("single", page[0]), page[1])}
            yield name, [r for r in on if key(r) == wanted.get(r.point.cell, page)]
