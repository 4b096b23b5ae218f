"""What variants and arms gain over the plainest one: ratios without a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.study.definition import Study
from plots.analyse import comparability, variants
from plots.analyse.points import NotCompared, Point, PointRow, Table, describe

_BUCKETS = ("bucket_mib", "exchange_bytes")


def gains(table: Table, study: Study, missing: list[NotCompared]) -> Iterator[PointRow]:
    """Compare every variant with the plainest of its siblings, and every arm beside the comparison
    with its own cell; no verdict, as none was asked for. `ratio` is of images/s.
    """
    arms = {arm: plain for plain, arm in study.beside}
    ignore = {*comparability.VARIED, comparability.OF_THE_ARM, *_BUCKETS}
    for point in (p for p in table.blocks if p.cell in arms):
        if (plain := point._replace(cell=arms[point.cell])) in table.blocks:
            pair = f"{describe(point)} against {plain.cell}"
            if blocks := table.shared(plain, point, ignore, pair, missing):
                facts = table.facts(point, blocks)
                fields = comparability.of_the_arm(facts)
                ratio = table.paired(plain, point, blocks).estimate
                yield PointRow(point, _over(plain) | {"ratio": ratio, "of_the_arm": fields})
    siblings: dict[Point, list[Point]] = defaultdict(list)
    for point in table.blocks:
        siblings[point._replace(variant=())].append(point)
    for points in siblings.values():
        plainest, *others = sorted(points, key=lambda p: (variants.changes(p.variant), p.variant))
        for point in others:
            pair = f"{describe(point)} against {', '.join(plainest.words)}"
            # but for the timeline: compute that slept gains nothing over compute
            names = (name for name, _ in (*point.variant, *plainest.variant))
            varied = {*comparability.VARIED, *names} - {comparability.EMULATE}
            if blocks := table.shared(plainest, point, {*varied, *_BUCKETS}, pair, missing):
                ratio = table.paired(plainest, point, blocks).estimate
                yield PointRow(point, _over(plainest) | {"ratio": ratio, "of_the_arm": ()})


def _over(baseline: Point) -> dict[str, object]:
    """Name the baseline, and describe it in the words that tell it apart."""
    return {"baseline": baseline, "over": ", ".join(baseline.words) or baseline.cell}
