"""Was the machine quiet during a run? What others took of its processors flags it, no more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from bench.record import Run
from bench.record.events import machine_of
from bench.record.quiet import NOISY, share_of_others

_OF_THE_NODE = ("busy_jiffies", "idle_jiffies", "steal_jiffies")
_OWN = "own_jiffies"


def others_share(run: Run) -> float | None:
    """Estimate what other processes and a hypervisor's other guests took, where that was most.

    From counters: the load average lags by a minute, and counts the run's own ranks, which poll
    while they wait. None for a log that lacks a counter, as older ones do, and for one of
    version 1.0 with server processes, whose own time no log holds.
    """
    if run.host.get("servers"):
        return None
    machines: dict[str, list[dict[str, int]]] = defaultdict(list)
    for index, rank in enumerate(run.host.get("ranks", ())):
        spent: dict[str, int] = {}
        for name in (*_OF_THE_NODE, _OWN):
            begun, ends = rank.get(name), run.end.get(name, ())
            if begun is None or index >= len(ends) or ends[index] is None:
                return None
            spent[name] = ends[index] - begun
        machines[machine_of(rank)].append(spent)
    return max(map(_share, machines.values()), default=None)


def _share(ranks: Sequence[dict[str, int]]) -> float:
    """Compute one machine's share: its counters, which each rank read, without the ranks' time."""
    busy, idle, stolen = (ranks[0][name] for name in _OF_THE_NODE)
    return share_of_others(busy, idle, stolen, sum(rank[_OWN] for rank in ranks))


def disturbed(runs: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Choose runs on machines that were not quiet, worst last; count those where it is known."""
    runs_with_share = runs[runs["others_share"].notna()]
    shares = runs_with_share["others_share"].astype(float)
    noisy = runs_with_share.assign(others_share=shares)[shares > NOISY].sort_values("others_share")
    return noisy, len(runs_with_share)
