"""What a variant gains over the plainest one, in the same cell and block: bfloat16 over float32,
compiled over not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from bench.config import RunConfig
from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability
from plots.analyse.blocks import block_name
from plots.analyse.points import NotCompared, Point, Table, describe, shared_blocks


@dataclass(frozen=True)
class Gain:
    """Images/s of `point` over those of `baseline`, which differs from it in its variant alone;
    paired by block.
    """

    point: Point
    baseline: Point
    ratio: Estimate


def measure(table: Table) -> tuple[list[Gain], list[NotCompared]]:
    """Every variant against the plainest of its siblings: the one that leaves most fields at their
    defaults.

    A description and no verdict: what a study is asked about is the framework, and variants are not
    named beforehand.
    """
    siblings: dict[Point, list[Point]] = defaultdict(list)
    for point in table.blocks:
        siblings[point._replace(variant=())].append(point)
    gains: list[Gain] = []
    missing: list[NotCompared] = []
    for points in siblings.values():
        plainest, *others = sorted(points, key=lambda p: (_changed(p), p.variant))
        for point in others:
            before, after, differ = shared_blocks(
                table, plainest, point, (*comparability.VARIED, "exchange_bytes")
            )
            what = f"{describe(point)} against {', '.join(plainest.variant)}"
            missing += [
                NotCompared(f"{what}, {block_name(x)}", "; ".join(d))
                for x, d in differ.items()
                if d
            ]
            missing += [] if differ else [NotCompared(what, "no block holds both")]
            if before:
                gains.append(
                    Gain(
                        point,
                        plainest,
                        stats.paired_ratio(numerator=before, denominator=after).estimate,
                    )
                )
    return sorted(gains, key=lambda g: (g.point.cell != "single", g.point)), missing


def _changed(point: Point) -> int:
    """Number of fields that are not at their defaults."""
    words = (word.partition("=") for word in point.variant)
    return sum(value != str(RunConfig.model_fields[field].default) for field, _, value in words)
