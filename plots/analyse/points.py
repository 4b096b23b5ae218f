"""Points: what was run, averaged inside each block, and which blocks two points share in equal
work.

Levels: steps < runs < blocks. Runs of one point in one block are averaged on time, never on rates
(Hoefler & Belli 2015, rule 3). `shipped` and `matched` settings are separate points and never meet;
neither do variants, such as two precisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

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


@dataclass(frozen=True, kw_only=True)
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


def by_point(runs: pd.DataFrame) -> Iterator[tuple[Point, pd.DataFrame]]:
    """The runs of each point, in order of their first logs."""
    settings = runs["settings"].where(runs["cell"] != "single", NO_SETTINGS)
    rest = [runs[name] for name in ("cell", "world_size", "samples_per_rank", "variant")]
    grouped: Any = runs.groupby([settings, *rest], sort=False)
    for (tuning, cell, world_size, batch, variant), rows in grouped:
        yield Point(tuning, cell, int(world_size), int(batch), variant), rows


def tabulate(runs: pd.DataFrame) -> Table:
    """Average the repeats of every point inside every block."""
    blocks: dict[Point, dict[Block, BlockMean]] = {}
    curves: dict[Point, frozenset[str]] = {}
    for point, rows in by_point(runs):
        in_blocks: Any = rows.groupby(["block", "allocation"])
        blocks[point] = {
            Block(int(block), allocation): _block_mean(group)
            for (block, allocation), group in in_blocks
        }
        curves[point] = frozenset().union(*rows["curves"])
    return Table(blocks, curves)


def _block_mean(rows: pd.DataFrame) -> BlockMean:
    shares = rows["input_share"].astype(float)  # a log before schema 2 does not say it
    return BlockMean(
        step_seconds=float(rows["step_seconds_mean"].mean()),
        runs=len(rows),
        facts=tuple(rows["facts"]),
        hosts=tuple(sorted({host for hosts in rows["hosts"] for host in hosts})),
        input_share=None if shares.isna().any() else float(shares.mean()),
    )


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
    """A point in words: 'cell/mpi (shipped), 2 ranks, 16 images per rank', and its variant if it is
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
