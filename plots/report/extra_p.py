"""Extra-P's text format: seconds per step against ranks, a value for each launch."""

from __future__ import annotations

from collections import defaultdict

from bench.config import UsageError
from bench.study.definition import Point
from bench.study.points import fixed, ranks
from plots.analyse.study import Analysis


def export(a: Analysis, curve: str) -> tuple[str, list[str]]:
    """Write seconds of a step against ranks: a region for each line, a value for each launch.

    Extra-P's text format has the same points in every region: what lacks one is left out, and named
    in remarks beside the text.
    """
    regions: dict[str, dict[int, Point]] = defaultdict(dict)
    for p in a.table.on(curve):
        if p.cell != "single":
            each = f"{fixed(p, curve)} images per {'step' if curve == 'strong' else 'rank'}"
            parts = (p.cell, each, p.arm, "emulated" * a.emulated(p.arm))
            name = "_".join(filter(None, parts)).replace(" ", "_")
            regions[name][p.world_size] = p
    worlds = sorted({world for region in regions.values() for world in region})
    lines = ["PARAMETER p", f"POINTS {' '.join(map(str, worlds))}", "METRIC step_seconds"]
    remarks = []
    for name, region in sorted(regions.items()):
        if lacking := [ranks(world) for world in worlds if world not in region]:
            remarks.append(f"left out: {name}, which has no {' and '.join(lacking)}")
            continue
        lines.append(f"REGION {name}")
        for world in worlds:
            means = a.table.launches[region[world]].values()
            lines.append(f"DATA {' '.join(repr(mean.step_seconds) for mean in means)}")
    if len(remarks) == len(regions):
        raise UsageError(f"no cell has all points of the curve {curve}; choose another")
    return "\n".join(lines) + "\n", remarks
