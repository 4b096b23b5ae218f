"""Figures of a study. Only this package imports matplotlib, and it computes no statistics."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from bench.study.definition import Point
from bench.study.disk import write_whole
from plots.analyse.scaling import Throughput
from plots.analyse.study import Analysis
from plots.report.figures import curves, exchange, ratio, trainings
from plots.report.figures.style import STYLE, with_names
from plots.report.format import file_names
from plots.report.labels import page_arm

# formats, and what of the moment each would hold
ENDINGS = {"svg": "Date", "png": "Software", "pdf": "CreationDate"}
_DPI = 200


def draw(a: Analysis) -> dict[str, Figure]:
    """Draw all figures for which the study has data; return them by file name without ending."""
    with matplotlib.rc_context(STYLE):
        return dict(_each(a))


def _each(a: Analysis) -> Iterator[tuple[str, Figure]]:
    """Yield (file name without ending, figure) for all figures of a study. Add new figures here."""
    # what slept is no row beside what computed
    kinds = ["emulated" if c.emulated else "real" for c in a.comparisons]
    for kind, name in file_names("ratio", [(kind,) for kind in kinds]):
        rows = [c for c, other in zip(a.comparisons, kinds, strict=True) if other == kind[0]]
        yield name, ratio.draw(a, rows)
    yield from _scaling(a)
    yield from _exchange(a)
    yield from _accuracy(a)


def _scaling(a: Analysis) -> Iterator[tuple[str, Figure]]:
    """Yield (name, figure) of curves over ranks, then over batches, per arm of several sizes."""

    def page(row: Throughput) -> tuple[str, str]:
        return "batch" if row.curve == "batch" else "scaling", page_arm(a, row.point)

    pages: dict[tuple[str, str], list[Throughput]] = {}
    for key in dict.fromkeys(page(r) for r in a.throughput if r.point.cell != "single"):
        of_arm = [r for r in a.throughput if r.point.cell != "single" and page(r) == key]
        plain = {a.table.plain_arm(r.point) for r in of_arm}
        single = (r for r in a.throughput if r.point.cell == "single" and r.point.arm in plain)
        rows = [r for r in single if page(r)[0] == key[0]]
        if len({curves.size(r) for r in (*rows, *of_arm)}) > 1:
            pages[key] = [*rows, *of_arm]
    order = sorted(pages, key=lambda key: -len({*map(curves.size, pages[key])}))
    for kind in ("scaling", "batch"):
        for key, name in file_names(kind, [key for key in order if key[0] == kind]):
            points = {r.point for r in pages[key]}
            scaled = [s for s in a.efficiency if s.point in points and kind == "scaling"]
            common = [s for s in scaled if s.kind == "common"]
            yield name, curves.scaling(a, pages[key], common or scaled)


def _accuracy(a: Analysis) -> Iterator[tuple[str, Figure]]:
    """Yield (file name, figure) of each arm, global batch and world size; each shows `single`."""

    def key(p: Point) -> tuple[str, int, int]:
        return page_arm(a, p), p.global_batch, p.world_size

    points = [t.point for t in a.trained if t.point.world_size > 1]
    pages = {key(p) for p in points or [t.point for t in a.trained]}
    for page, name in file_names("accuracy", sorted(pages)):
        rows = [t for t in a.trained if key(t.point) == page and t.point.cell != "single"]
        plain = {a.table.plain_arm(t.point) for t in rows} or {page[0]}
        single = (t for t in a.trained if t.point.cell == "single" and t.point.arm in plain)
        rows = [*(t for t in single if t.point.global_batch == page[1]), *rows]
        yield name, trainings.accuracy(a, rows)


def _exchange(a: Analysis) -> Iterator[tuple[str, Figure]]:
    """Yield a figure of step parts per world size and batch per rank; a row is a cell in an arm."""

    def of(p: Point) -> tuple[int, int]:
        return p.world_size, p.batch_per_rank

    parts = a.breakdowns
    for page, name in file_names("breakdown", sorted({of(r.point) for r in parts})):
        yield name, exchange.breakdown(a, [r for r in parts if of(r.point) == page])


def save(figures: dict[str, Figure], folder: Path) -> dict[str, str]:
    """Write each figure as NAME.svg, without a date, to `folder`; return the SVG texts by name."""
    drawn = {name: _data(figure, "svg") for name, figure in figures.items()}
    for name, data in drawn.items():
        write_whole(folder / f"{name}.svg", data)
    return {name: data.decode() for name, data in drawn.items()}


def save_as(figure: Figure, path: Path) -> Path:
    """Write one figure in the format of the path's ending, one of ENDINGS; return the path."""
    return write_whole(path, _data(figure, path.suffix[1:]))


def _data(figure: Figure, ending: str) -> bytes:
    data = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(data, format=ending, dpi=_DPI, metadata={ENDINGS[ending]: None})
    drawn = data.getvalue()
    return with_names(drawn.decode()).encode() if ending == "svg" else drawn
