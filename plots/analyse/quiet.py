"""Was the machine quiet during a run? What others took of its processors flags it, no more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from bench.record import Run

# Share of a node's processor time from a run's start to its end. Where ranks leave no core idle,
# what others take is missing to the steps: more than a study's usual margin may decide a verdict.
NOISY = 0.02
_OF_THE_NODE = ("busy_jiffies", "idle_jiffies", "steal_jiffies")
_OWN = "own_jiffies"


def others_share(run: Run) -> float | None:
    """What other processes and a hypervisor's other guests took, of the node where it was largest.

    From counters: the load average lags by a minute, and counts the run's own ranks, which poll
    while they wait. None for a log that lacks a counter, as older ones do, and for a run with
    parameter servers, whose own time no log holds.
    """
    if run.host.get("servers"):
        return None
    nodes: dict[str, list[dict[str, int]]] = defaultdict(list)
    for index, rank in enumerate(run.host.get("ranks", ())):
        spent: dict[str, int] = {}
        for name in (*_OF_THE_NODE, _OWN):
            begun, ends = rank.get(name), run.end.get(name, ())
            if begun is None or index >= len(ends) or ends[index] is None:
                return None
            spent[name] = ends[index] - begun
        nodes[rank["hostname"]].append(spent)
    return max(map(_share, nodes.values()), default=None)


def _share(ranks: Sequence[dict[str, int]]) -> float:
    """Of one node: its counters, which each of its ranks has read, without the ranks' own time.

    A node counts whom its clock tick meets, a process what it has run: threads that wake often and
    shortly, as Gloo's do, add up to more than their node. That must not hide what was stolen.
    """
    busy, idle, stolen = (ranks[0][name] for name in _OF_THE_NODE)
    others = max(0, busy - sum(rank[_OWN] for rank in ranks))
    return (others + stolen) / max(1, busy + idle + stolen)


def note(runs: pd.DataFrame) -> list[str]:
    """One sentence on the runs whose machine was not quiet; none where all were, or none tells."""
    told = runs[runs["others_share"].notna()]
    shares = told["others_share"].astype(float)
    noisy = told.assign(others_share=shares)[shares > NOISY].sort_values("others_share")
    if noisy.empty:
        return []
    most = noisy.iloc[-1]
    return [
        f"The machine was not quiet in {len(noisy)} of {len(told)} runs: other processes, or other "
        f"guests of its host, took more than {100 * NOISY:g} % of a node's processor time, at most "
        f"{100 * most['others_share']:.0f} % ({most['log']})"
    ]
