"""When blocks ran: with a pause between two runs of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from plots.analyse.comparability import NO_BLOCK, Block

LEAST_SECONDS = 600.0  # below, a launcher, a doctor or a calibration may have taken them
RUNS = 3.0  # as long as so many runs: one that was done again in another session leaves room


@dataclass(frozen=True, kw_only=True)
class Pause:
    """What a pair that spans it met the machine before and after."""

    block: Block
    seconds: float
    limit_seconds: float
    after: str  # logs
    before: str


def find(runs: pd.DataFrame) -> Iterator[Pause]:
    """The pauses of every block that are longer than the limit; of logs that tell their times."""
    limit = max(LEAST_SECONDS, RUNS * float(runs["wall_s"].median()))
    place = ["block", "allocation"]
    timed = runs[runs["block"] != NO_BLOCK].sort_values([*place, "began_s"])
    ended = timed["began_s"] + timed["wall_s"]
    before = timed.assign(ended=ended).groupby(place)[["log", "ended"]].shift()
    timed = timed.assign(after=before["log"], pause_s=timed["began_s"] - before["ended"])
    flagged: Any = timed[timed["pause_s"] > limit]  # not where a time is not known
    for row in flagged.itertuples():
        yield Pause(
            block=Block(int(row.block), row.allocation),
            seconds=float(row.pause_s),
            limit_seconds=limit,
            after=row.after,
            before=row.log,
        )


def sentence(pause: Pause) -> str:
    """For a page."""
    minutes, limit = pause.seconds / 60, pause.limit_seconds / 60
    between = f"{minutes:,.0f} min passed between two of its runs, {pause.after} and {pause.before}"
    return f"{pause.block.name}: {between}; more than {limit:.0f} min are flagged"
