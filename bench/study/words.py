"""Verdicts in words, for reports and commands: which side is faster, and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.backends.catalogue import facts, parts
from bench.study.definition import Point
from bench.study.looks import MAX_LAUNCHES

if TYPE_CHECKING:  # what counts in words starts without pandas
    from bench.study.comparison import Comparison


def interim(folder: Path) -> tuple[str, bool]:
    """Return a line on the verdict of a study's primary comparison, and whether it is settled.

    Raises UsageError if no log is usable.
    """
    from bench.study.comparison import compare
    from bench.study.frames import load, require
    from bench.study.points import ranks, tabulate

    loaded = load(folder)
    require(loaded, folder)
    rows = compare(tabulate(loaded.runs), loaded.study, [])
    c = next((c for c in rows if c.primary), None)
    if c is None:
        return "Not settled: no launch holds both sides of the primary comparison", False
    where = ", ".join(filter(None, [ranks(c.world_size), c.transport, c.arm]))
    texts = [f"{sentence(c)} ({where}, n = {c.paired.n})", prospect(c)]
    return ". ".join(filter(None, texts)), c.settled


def sides(a: Point, b: Point) -> tuple[str, str]:
    """Name reference and candidate: by their backends where these differ, else by cell or arm."""
    if a.cell == b.cell:
        return f"{a.cell} ({a.arm})", f"{b.cell} ({b.arm})"
    if parts(a.cell).backend == parts(b.cell).backend:
        return a.cell, b.cell
    return facts(a.cell).short_label, facts(b.cell).short_label


def word(c: Comparison) -> str:
    """Name the verdict: 'Horovod faster', 'DDP faster', 'Equal within 2 %' or 'Not settled'.

    The verdict is 'No verdict planned' if the study plans too few launches for one.
    """
    if not c.decides:
        return "No verdict planned"
    reference, candidate = sides(*c.points)
    faster = candidate if c.paired.ratio > 1 else reference
    words = {"faster": f"{faster} faster", "equal": f"Equal within {rule(c.margin)}"}
    return words.get(c.verdict, "Not settled")


def sentence(c: Comparison) -> str:
    """State the verdict, with difference and interval: 'Horovod faster: 5.3 % [0.6, 10.2]'.

    The difference is the lead of the faster side. If neither is faster, it is the candidate's lead,
    which may be negative. With too few launches, the sentence says instead how many are needed, or
    that no verdict is planned.
    """
    text = word(c)
    if c.decides and c.paired.n < c.needs:
        text += f": needs {c.needs} launches"
    elif c.decides:
        e = c.estimate
        values = (e.value, e.low or e.value, e.high or e.value)
        if c.verdict == "faster" and e.value < 1:
            values = (1 / e.value, 1 / values[2], 1 / values[1])
        value, low, high = (100 * (x - 1) for x in values)
        text += f": {round(value, 1) + 0.0:.1f} % [{', '.join(ends(low, high, 1, 0.0))}]"
    return text


def prospect(c: Comparison) -> str:
    """Say how many launches would settle a comparison; '' if it is settled or has too few yet."""
    if c.settled or c.chance is None:
        return ""
    if c.launches_to_settle is None:
        return f"More than {MAX_LAUNCHES:,} launches would be needed"
    needed = f"About {c.launches_to_settle:,} launches would settle it"
    if c.paired.n >= c.max_launches:
        return f"{needed}, in a new study"
    by_then = f"the chance by the last look, {c.max_launches}, is {100 * c.chance:.0f} %"
    return f"{needed}; {by_then}, were ratio and noise the true ones"


def count(n: int, noun: str) -> str:
    """Count in words: '1 point', '2 points', '1,000 launches'."""
    return f"{n:,} {noun}{'' if n == 1 else 'es' if noun.endswith('ch') else 's'}"


def ends(low: float, high: float, digits: int, limit: float) -> tuple[str, str]:
    """Format an interval's ends to `digits` decimals, or more if an end would round to `limit`."""
    others = [end for end in (low, high) if end != limit]
    enough = (n for n in range(digits, 9) if limit not in (round(end, n) for end in others))
    digits = next(enough, digits)
    return f"{low:.{digits}f}", f"{high:.{digits}f}"


def rule(x: float) -> str:
    """Write a fixed share, such as a margin, as a percentage: '2 %'."""
    return f"{100 * x:g} %"
