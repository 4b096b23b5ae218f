"""Whether a study's primary comparison is settled, and its line: for who adds launches until so."""

from __future__ import annotations

from pathlib import Path

from plots.analyse.comparison import compare
from plots.analyse.points import ranks, tabulate
from plots.analyse.runs import load, require
from plots.report.verdicts import line, prospect


def settled(folder: Path) -> tuple[bool, str]:
    """Whether it is, and the line that says so. Raises UsageError where no log is usable."""
    loaded = load(folder)
    require(loaded, folder)
    rows = compare(tabulate(loaded.runs), loaded.study, [])
    c = next((c for c in rows if c.primary), None)
    if c is None:
        return False, "Not settled: no launch holds both sides of the primary comparison"
    where = ", ".join([ranks(c.world_size), *filter(None, [c.transport]), *c.words])
    words = [f"{line(c)} ({where}, n = {c.paired.n})", prospect(c)]
    return c.settled, ". ".join(filter(None, words))
