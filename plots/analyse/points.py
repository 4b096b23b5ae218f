"""Points: what was run, averaged inside each block, and which blocks two points share in equal
work.

Levels: steps < runs < blocks. Runs of one point in one block are averaged on time, never on rates
(Hoefler & Belli 2015, rule 3). `shipped` and `matched` settings are separate points and never meet;
neither do variants, such as two precisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from plots.analyse import comparability
from plots.analyse.blocks import Block

CURVES = ("weak", "strong", "batch")
NO_SETTINGS = "none"  # `single` exchanges nothing, so settings do not split it


class Point(NamedTuple):
    """What was run, apart from block and repeat."""

    settings: str
    cell: str
    world_size: int
    samples_per_rank: int
    variant: tuple[str, ...] = ()  # 'field=value' of the fields in which the folder's runs differ

    @property
    def samples_per_step(self) -> int:
        return self.samples_per_rank * self.world_size

    def fixed(self, curve: str) -> int:
        """What stays the same along a curve: images per rank (weak), images per step (strong),
        ranks (batch).
        """
        return {
            "weak": self.samples_per_rank,
            "strong": self.samples_per_step,
            "batch": self.world_size,
        }[curve]


@dataclass(frozen=True)
class BlockMean:
    """One point in one block: mean seconds of a step over its repeats."""

    step_seconds: float
    runs: int
    facts: tuple[comparability.Facts, ...]
    hosts: tuple[str, ...] = ()
    input_share: float | None = (
        None  # of the windows' time, waited for batches by the rank that waited most
    )


@dataclass(frozen=True)
class Table:
    """All points by block, and the curves each point is part of."""

    blocks: Mapping[Point, Mapping[Block, BlockMean]]
    curves: Mapping[Point, frozenset[str]]

    def on(self, curve: str) -> list[Point]:
        """Points of a curve, series by series, ranks and batch rising."""
        points = [p for p, curves in self.curves.items() if curve in curves]
        return sorted(
            points,
            key=lambda p: (
                p.variant,
                p.settings,
                p.fixed(curve),
                p.cell != "single",
                p.cell,
                p.world_size,
                p.samples_per_rank,
            ),
        )


@dataclass(frozen=True)
class NotCompared:
    """A pair of points that should have been compared and was not, in one block or at all, with the
    reason; `absent` is the one of which there is no usable run at all.
    """

    what: str
    reason: str
    absent: Point | None = None


def tabulate(runs: pd.DataFrame) -> Table:
    """Average the repeats of every point inside every block."""
    groups: dict[Point, dict[Block, list[Mapping[Any, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    curves: dict[Point, set[str]] = defaultdict(set)
    for row in runs.to_dict("records"):
        point = point_of(row)
        groups[point][Block(row["block"], row["allocation"])].append(row)
        curves[point].update(row["curves"])
    blocks = {
        point: {b: _block_mean(rows) for b, rows in sorted(found.items())}
        for point, found in groups.items()
    }
    return Table(blocks, {p: frozenset(c) for p, c in curves.items()})


def point_of(row: Mapping[Any, Any]) -> Point:
    """The point that a run belongs to."""
    settings = NO_SETTINGS if row["cell"] == "single" else row["settings"]
    return Point(
        settings, row["cell"], int(row["world_size"]), int(row["samples_per_rank"]), row["variant"]
    )


def _block_mean(rows: Sequence[Mapping[Any, Any]]) -> BlockMean:
    facts = tuple(row["facts"] for row in rows)
    hosts = tuple(sorted({host for row in rows for host in row["hosts"]}))
    return BlockMean(
        float(np.mean([r["step_seconds_mean"] for r in rows])),
        len(rows),
        facts,
        hosts,
        mean_share(rows),
    )


def mean_share(rows: Sequence[Mapping[Any, Any]]) -> float | None:
    """Mean over runs of the time waited for batches; None where a log does not say (before schema
    2).
    """
    shares = [row["input_share"] for row in rows]
    return None if any(s is None or s != s for s in shares) else float(np.mean(shares))


def shared_blocks(
    table: Table, a: Point, b: Point, ignore: tuple[str, ...]
) -> tuple[list[float], list[float], dict[Block, list[str]]]:
    """Step seconds of two points in the blocks they share and did equal work in; and per block that
    both have what differs.

    A block is shared inside one allocation only: other nodes, or the same ones another day, are not
    the same conditions.
    """
    blocks = [block for block in table.blocks[a] if block in table.blocks[b]]
    differ = {
        x: comparability.differences(table.blocks[a][x].facts, table.blocks[b][x].facts, ignore)
        for x in blocks
    }
    good = [x for x in blocks if not differ[x]]
    seconds = [[table.blocks[p][x].step_seconds for x in good] for p in (a, b)]
    return seconds[0], seconds[1], differ | _held_apart(table, a, b)


def _held_apart(table: Table, a: Point, b: Point) -> dict[Block, list[str]]:
    """Per block that both points have, but in no allocation together: where each has it."""
    places: list[dict[int, list[str]]] = [defaultdict(list), defaultdict(list)]
    for point, held in zip((a, b), places, strict=True):
        for block in table.blocks[point]:
            held[block.number].append(block.allocation or "no job recorded")
    both = [i for i in places[0] if i in places[1] and not set(places[0][i]) & set(places[1][i])]
    return {
        Block(i): ["not in one allocation: " + " against ".join(" and ".join(p[i]) for p in places)]
        for i in both
    }


def describe(point: Point) -> str:
    """A point in words: 'ddp/mpi (shipped), 2 ranks, 16 images per rank', and its variant if it is
    one.
    """
    settings = "" if point.settings == NO_SETTINGS else f" ({point.settings})"
    where = (
        f"{point.cell}{settings}, {ranks(point.world_size)}, {point.samples_per_rank} images "
        f"per rank"
    )
    return ", ".join([where, *point.variant])


def ranks(n: int) -> str:
    """'1 rank', '2 ranks'."""
    return f"{n} rank" if n == 1 else f"{n} ranks"
