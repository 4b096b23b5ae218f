"""Extra-P's text format: seconds per step against ranks, a value for each block."""

from __future__ import annotations

from collections import defaultdict

from bench.config import UsageError
from bench.study.definition import Point
from bench.study.points import fixed, ranks
from plots.analyse.study import Analysis


def export(a: Analysis, curve: str) -> tuple[str, list[str]]:
    """Write seconds of a step against ranks: a region for each line, a value for each block.

    Extra-P's text format has the same points in every region: what lacks one is left out, and named
    in remarks beside the text.
    """
    points: dict[str, dict[int, Point]] = defaultdict(dict)
    for p in a.table.on(curve):
        if p.cell != "single":
            points[_region(a, p, curve)][p.world_size] = p
    worlds = sorted({world for region in points.values() for world in region})
    whole = {name: region for name, region in points.items() if sorted(region) == worlds}
    if not whole:
        raise UsageError(f"no cell has all points of the curve {curve}; choose another")
    lacking = {
        name: " and ".join(ranks(world) for world in worlds if world not in region)
        for name, region in points.items()
        if name not in whole
    }
    lines = ["PARAMETER p", f"POINTS {' '.join(map(str, worlds))}", "METRIC step_seconds"]
    for name, region in sorted(whole.items()):
        lines.append(f"REGION {name}")
        for world in worlds:
            means = a.table.blocks[region[world]].values()
            lines.append(f"DATA {' '.join(repr(mean.step_seconds) for mean in means)}")
    return "\n".join(lines) + "\n", [
        f"left out: {name}, which has no {sizes}" for name, sizes in sorted(lacking.items())
    ]


def _region(a: Analysis, point: Point, curve: str) -> str:
    """Name all that tells a line of the curve from others: 'ddp/mpi_16_images_per_rank'."""
    each = "step" if curve == "strong" else "rank"
    words = [point.cell, f"{fixed(point, curve)} images per {each}"]
    words += [point.arm] if point.arm else []
    words += ["emulated"] if a.emulated(point.arm) else []
    return "_".join(words).replace(" ", "_")
