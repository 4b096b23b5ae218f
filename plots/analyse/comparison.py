"""Horovod against DDP on the same transport, point by point, paired by block: ratio, verdict, price
of knowing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.study import stats
from bench.study.definition import Primary
from bench.study.stats import Paired, Verdict
from plots.analyse import comparability
from plots.analyse.blocks import Block, block_name
from plots.analyse.points import CURVES, NotCompared, Point, Table, describe, shared_blocks
from plots.report.format import count

VISIBLE_EFFECT = 0.02  # the effect whose price in blocks is printed beside every comparison


@dataclass(frozen=True)
class Comparison:
    """Horovod over DDP in images/s on one transport at one point; above 1, Horovod is faster."""

    transport: str
    settings: str
    world_size: int
    samples_per_rank: int
    curves: tuple[str, ...]
    paired: Paired
    verdict: Verdict
    holm_p: float | None
    blocks_to_settle: int | None
    half_width: float | None
    blocks_for_visible_effect: int | None
    variant: tuple[str, ...] = ()
    primary: bool = False
    unequal: tuple[
        str, ...
    ] = ()  # what one side's environment had by intent and the other's had not, in words

    @property
    def cells(self) -> tuple[str, str]:
        return f"ddp/{self.transport}", f"horovod/{self.transport}"

    @property
    def samples_per_step(self) -> int:
        return self.samples_per_rank * self.world_size


def compare(
    table: Table, margin: float, primary: Primary | None = None
) -> tuple[list[Comparison], list[NotCompared]]:
    """Horovod against DDP on each transport, point by point, paired by block; Holm over all that
    could be tested.

    The one comparison that was named beforehand is left out of that correction.
    """
    rows: list[Comparison] = []
    missing: list[NotCompared] = []
    cells = {p.cell for p in table.blocks}
    for a in sorted(
        {p._replace(cell=_other(p.cell, "ddp")) for p in table.blocks if "/" in p.cell}
    ):
        b = a._replace(cell=_other(a.cell, "horovod"))
        if not {a.cell, b.cell} <= cells:
            continue
        what = f"{describe(a)} against {b.cell}"
        if lacking := [p for p in (a, b) if p not in table.blocks]:
            missing.append(NotCompared(what, f"no usable run of {lacking[0].cell}", lacking[0]))
            continue
        seconds_a, seconds_b, differ = shared_blocks(
            table, a, b, (comparability.TUNED, comparability.OWN_ENV)
        )
        missing += [
            NotCompared(f"{what}, {block_name(x)}", "; ".join(d)) for x, d in differ.items() if d
        ]
        missing += [] if differ else [NotCompared(what, "no block holds both")]
        if seconds_a:
            paired = stats.paired_ratio([1 / s for s in seconds_a], [1 / s for s in seconds_b])
            used = [x for x, d in differ.items() if not d]
            rows.append(
                replace(
                    _comparison(table, a, b, paired, margin), unequal=_unequal(table, a, b, used)
                )
            )
    rows = _name_primary(rows, primary)
    tested = [
        r
        for r in rows
        if not r.primary and r.verdict != "too few blocks" and r.paired.t_p is not None
    ]
    adjusted = dict(
        zip(map(id, tested), stats.holm([r.paired.t_p or 0.0 for r in tested]), strict=True)
    )
    return [replace(r, holm_p=adjusted.get(id(r))) for r in rows], missing


def _name_primary(rows: list[Comparison], primary: Primary | None) -> list[Comparison]:
    """Mark the row that was named; none where that is not exactly one, as several would need a
    correction of their own.
    """
    named = [r for r in rows if primary is not None and _is(r, primary)]
    return [replace(r, primary=len(named) == 1 and r is named[0]) for r in rows]


def _is(row: Comparison, primary: Primary) -> bool:
    asked = {
        "transport": primary.transport,
        "settings": primary.settings,
        "samples_per_rank": primary.batch_per_rank,
    }
    same = all(getattr(row, k) == v for k, v in asked.items() if v is not None)
    return same and row.world_size == primary.world_size and primary.curve in row.curves


def _other(cell: str, backend: str) -> str:
    return f"{backend}/{cell.split('/')[1]}"


def _comparison(table: Table, a: Point, b: Point, paired: Paired, margin: float) -> Comparison:
    curves = tuple(c for c in CURVES if c in table.curves[a] | table.curves[b])
    said = stats.verdict(paired, margin)
    half = None if paired.ci95 is None else (paired.ci95[1] / paired.ci95[0]) ** 0.5 - 1
    return Comparison(
        a.cell.split("/")[1],
        a.settings,
        a.world_size,
        a.samples_per_rank,
        curves,
        paired,
        said,
        None,
        stats.blocks_to_settle(paired, margin) if said == "inconclusive" else None,
        half,
        _if_known(paired.sd_log, lambda sd: stats.blocks_for_power(sd, VISIBLE_EFFECT)),
        a.variant,
    )


def _unequal(table: Table, a: Point, b: Point, blocks: Sequence[Block]) -> tuple[str, ...]:
    """By cell the variables that were set for it alone."""
    own = {
        p.cell: comparability.own_env(f for x in blocks for f in table.blocks[p][x].facts)
        for p in (a, b)
    }
    alone = {
        cell: [v for v in own[cell] if v not in own[other]]
        for cell, other in ((a.cell, b.cell), (b.cell, a.cell))
    }
    return tuple(
        f"{cell} alone ran with {', '.join(words)}" for cell, words in alone.items() if words
    )


def _if_known(value: float | None, f: Callable[[float], int | None]) -> int | None:
    return None if value is None else f(value)


def sentence(c: Comparison, margin: float, tests: int) -> str:
    """The verdict in words, and whether it is one on equal terms; `tests`: the comparisons that
    Holm's correction spans.
    """
    return _verdict(c, margin, tests) + ("; in unequal environments" if c.unequal else "")


def _verdict(c: Comparison, margin: float, tests: int) -> str:
    ddp, horovod = c.cells
    faster = horovod if c.paired.ratio > 1 else ddp
    within = f"equivalent within {100 * margin:g} %"
    if c.verdict == "too few blocks":
        return (
            "n=1, no interval, no verdict"
            if c.paired.n == 1
            else f"no verdict below {stats.MIN_BLOCKS} blocks"
        )
    if c.verdict == "equivalent":
        return within
    if c.verdict == "inconclusive":
        price = (
            f"about {c.blocks_to_settle} blocks"
            if c.blocks_to_settle
            else f"more than {stats.MAX_BLOCKS} blocks"
        )
        return f"inconclusive; {price} would settle it"
    holds = (
        ""
        if c.holm_p is None or c.holm_p <= 0.05
        else f" (not after Holm's correction over {tests} comparisons)"
    )
    if c.verdict == "small difference":
        return (
            f"{within}, with a real but small difference: {faster} faster by "
            f"{100 * gain(c)[0]:.1f} %{holds}"
        )
    value, low, high = (100 * x for x in gain(c))
    return f"{faster} faster by {value:.1f} % [{low:.1f}, {high:.1f}]{holds}"


def gain(c: Comparison) -> tuple[float, float, float]:
    """By what share the faster side is faster, with the ends of the 95 % interval: 0.07 is 7 %."""
    low, high = c.paired.ci95 or (c.paired.ratio, c.paired.ratio)
    if c.paired.ratio > 1:
        return c.paired.ratio - 1, low - 1, high - 1
    return 1 / c.paired.ratio - 1, 1 / high - 1, 1 / low - 1


def label(c: Comparison) -> str:
    """The verdict in two words, for a figure; two more where the terms were not equal."""
    return _words(c) + (" (environments differ)" if c.unequal else "")


def _words(c: Comparison) -> str:
    if c.verdict == "different" and c.holm_p is not None and c.holm_p > 0.05:
        return "not after Holm"
    if c.verdict == "different":
        return "Horovod faster" if c.paired.ratio > 1 else "DDP faster"
    return "equivalent" if c.verdict == "small difference" else c.verdict


def tally(rows: Sequence[Comparison], sizes: bool = False) -> str:
    """All verdicts in one line: 'DDP faster at 22 of 26 points, equivalent at 4'; with `sizes` by
    how much the faster is.
    """
    groups: dict[str, list[Comparison]] = {}
    for c in rows:
        groups.setdefault(label(c), []).append(c)
    total = count(len(rows), "point")
    said: list[str] = []
    for word, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        where = (
            f"all {total}"
            if 1 < len(group) == len(rows)
            else f"{len(group)}"
            if said
            else f"{len(group)} of {total}"
        )
        said.append(
            f"{word} at {total if len(rows) == 1 else where}{_sizes(word, group) if sizes else ''}"
        )
    return ", ".join(said)


def _sizes(word: str, rows: Sequence[Comparison]) -> str:
    if "faster" not in word:
        return ""
    gains = sorted(gain(c)[0] for c in rows)
    ends = dict.fromkeys(f"{100 * g:,.1f}" for g in (gains[0], gains[-1]))
    return f" (by {' to '.join(ends)} %)"
