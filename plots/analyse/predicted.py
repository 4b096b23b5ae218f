"""Predictions beside what was measured: each on its curve, with how far off it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plots.analyse.points import NotCompared, Point, PointRow, Table
from plots.read.predictions import PredictionLine


def predictions(
    table: Table,
    efficiency: Sequence[PointRow],
    lines: Sequence[PredictionLine],
    missing: list[NotCompared],
) -> Iterator[PointRow]:
    """Every line whose curve was measured, against the efficiency over one plain process."""
    curves = {
        (curve, ", ".join([point.cell, *point.words]), point.fixed(curve)): point
        for curve in ("weak", "strong")
        for point in table.on(curve)
    }
    measured = {(r.curve, r.point): r.efficiency for r in efficiency if r.kind == "common"}
    for line in lines:
        alike = curves.get((line.curve, line.name, line.images))
        ranks = line.world_size
        batch, left = divmod(line.images, ranks if line.curve == "strong" else 1)
        if alike is None or left:
            none = f"no run of it is there at {line.images} images"
            uneven = f"{line.images} images of a step do not divide among {ranks} ranks"
            title = f"{line.curve}: prediction of {line.name}"
            missing.append(NotCompared(title, none if alike is None else uneven))
            continue
        point = Point(alike.cell, ranks, batch, alike.variant)
        of_run = measured.get((line.curve, point))
        off = None if of_run is None else line.predicted_efficiency - of_run.value
        inside = None if of_run is None else line.low <= of_run.value <= line.high
        values = {
            "curve": line.curve,
            "use": line.use,
            "predicted_efficiency": line.predicted_efficiency,
            "low": line.low,
            "high": line.high,
            "measured_efficiency": of_run,
            "points_off": None if off is None else 100 * off,
            "inside": inside,
            "doubt": line.doubt,
        }
        yield PointRow(point, values)
