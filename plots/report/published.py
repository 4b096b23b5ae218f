"""Imported and published numbers on a page, and ours beside them, marked as what they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bench.config import UsageError
from bench.study.disk import write_whole
from bench.study.frames import load
from bench.study.points import fixed
from bench.study.stats import Estimate
from plots.analyse.study import analyse, machine
from plots.imports.efficiency import CurveRow, is_curve, scaled
from plots.imports.observation import RATE
from plots.report import figures
from plots.report.figures import published as figure
from plots.report.format import clean, escape, number, percent, rate
from plots.report.tables import Column, markdown_table

_NEEDED = ("source", "backend", "world_size", "quantity", "value", "reducer")
_WORDS = dict.fromkeys(("source", "backend", "quantity", "reducer"), "str")  # '2017' is a name
_ALL = (*_NEEDED, "batch_per_rank", "global_batch", "n")


def page(folder: Path, studies: Sequence[Path], out: Path) -> Path:
    """Write published.md and its figure, from all tables of points in `folder` and our studies."""
    points = _points(folder)
    rows = [*_imported(scaled(points)), *(row for study in studies for row in _study_rows(study))]
    if not rows:
        raise UsageError(f"{folder}: no table of it holds images_per_s; import some logs first")
    others = points[~is_curve(points)].sort_values(["source", "quantity", "backend", "world_size"])
    out.mkdir(parents=True, exist_ok=True)
    figures.save({"published": figure.draw(rows)}, out)
    sources = list(dict.fromkeys([*(row.source for row in rows), *others["source"]]))
    source = Column(lambda row: 1 + sources.index(row.source), "source")
    rest = [] if others.empty else ["## Other quantities", "", _others(source, others), ""]
    text = "\n".join([
        "# Published and imported numbers",
        "",
        "Other people's numbers as they stand in their sources: mostly one run a point, so without "
        "an interval. *Own*: against the same backend's one rank. *Common*: against one process "
        "without a framework. Hollow markers are theirs, filled ones ours with 95 % intervals. "
        "Machines, wires and batches differ: compare the shapes of curves, not their heights.",
        "",
        "![Efficiency against ranks](published.svg)",
        "",
        markdown_table([source, *_COLUMNS], rows),
        "",
        *rest,
        "## Sources",
        "",
        *(f"{i}. {escape(source)}" for i, source in enumerate(sources, 1)),
        "",
    ])  # fmt: skip
    return write_whole(out / "published.md", text.encode())


def _alone(x: float) -> Estimate | None:
    """Make an estimate of one number without an interval; None where it is missing."""
    return None if pd.isna(x) else Estimate(value=float(x), low=None, high=None, n=0)


_COLUMNS = (
    Column("curve", "curve"),
    Column("backend", "backend"),
    Column("world_size", "ranks"),
    Column("batch", "batch", lambda batch: "-" if pd.isna(batch) else f"{batch:.0f}"),
    Column("images_per_s", "images/s", rate),
    Column("own_efficiency", "efficiency, own", percent),
    Column("common_efficiency", "efficiency, common", percent),
    Column("how", "how"),
)


def _points(folder: Path) -> pd.DataFrame:
    paths = [path for path in sorted(folder.glob("*.csv")) if not path.stem.endswith("-values")]
    if not paths:
        raise UsageError(f"{folder}: no tables of imported points (*.csv); import some logs first")
    return pd.concat(map(_read_points, paths), ignore_index=True)


def _read_points(path: Path) -> pd.DataFrame:
    """Read one table of points. Raises UsageError where it is none."""
    try:
        frame = pd.read_csv(path, dtype=_WORDS)
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} is no CSV: {error}; mend it, or take it out") from None
    if missing := [name for name in _NEEDED if name not in frame]:
        raise UsageError(f"{path} has no column {', '.join(missing)}; see results/published")
    # other quantities may be words, which make no number
    numbers = frame[["world_size", "value"]].apply(pd.to_numeric, errors="coerce")
    rates = numbers[frame["quantity"] == RATE]
    if not ((rates["world_size"] >= 1) & (rates["value"] > 0)).all():
        raise UsageError(f"{path}: a row of {RATE} lacks its world_size or value; mend the row")
    return frame.assign(**numbers).reindex(columns=list(_ALL))


def _imported(points: pd.DataFrame) -> Iterator[CurveRow]:
    rows: Any = points.itertuples()
    for r in rows:
        efficiencies = _alone(r.own_efficiency), _alone(r.common_efficiency)
        if (value := _alone(r.value)) is not None:
            place = (r.source, r.curve, r.backend, int(r.world_size), r.batch)
            yield CurveRow(*place, value, *efficiencies, r.reducer, measured=False)


def _study_rows(folder: Path) -> Iterator[CurveRow]:
    a = analyse(load(folder))
    for t in a.throughput:
        if t.curve not in ("weak", "strong"):
            continue
        kinds = {
            s.kind: s.efficiency for s in a.efficiency if (s.curve, s.point) == (t.curve, t.point)
        }
        if t.point.world_size == 1 and t.point.cell != "single":
            kinds["own"] = replace(t.images_per_s, value=1.0, low=1.0, high=1.0)  # as it is meant
        kind = "emulated, " if a.emulated(t.point.arm) else ""
        how = f"{kind}n = {t.images_per_s.n} launches"
        # before the brackets, which a figure leaves out
        source = f"ours: {kind}{a.loaded.study.name} ({clean(machine(a.loaded.host), 80)})"
        size = (t.point.world_size, fixed(t.point, t.curve), t.images_per_s)
        ends = kinds.get("own"), kinds.get("common")
        yield CurveRow(source, t.curve, t.point.cell, *size, *ends, how, measured=True)


def _others(source: Column, rows: pd.DataFrame) -> str:
    columns = [
        Column(name, title, number)
        for name, title in (
            ("backend", "backend"), ("world_size", "ranks"),
            ("batch_per_rank", "images per rank"), ("global_batch", "images per step"),
            ("quantity", "quantity"), ("value", "value"), ("reducer", "how"),
        )
    ]  # fmt: skip
    return markdown_table([source, *columns], list(rows.itertuples()))
