"""Share of a node's processor time that other processes take, from the kernel's counters."""

from __future__ import annotations

import os
import time

from bench.launch.machine import family_ticks, node_ticks

# Share of a node's processor time from a run's start to its end. Where ranks leave no core idle,
# the steps lack what others take, and more than a study's usual margin may decide a comparison.
NOISY = 0.02


def share_of_others(busy: int, idle: int, stolen: int, run_ticks: int) -> float:
    """Return the share of a node's clock ticks that other processes and virtual machines took.

    `busy`, `idle` and `stolen` are the node's ticks, `run_ticks` those of the run's processes. The
    kernel samples `busy` but measures `run_ticks`. If threads wake often and briefly, as Gloo's do,
    `run_ticks` can exceed `busy`. Such an excess must not hide stolen ticks.
    """
    return (max(0, busy - run_ticks) + stolen) / max(1, busy + idle + stolen)


def look(seconds: float) -> float | None:
    """Measure others' share of this machine for `seconds`; None if /proc/stat does not tell."""
    before, ticks = node_ticks(), family_ticks(os.getpid())
    time.sleep(seconds)
    after = node_ticks()
    if before is None or after is None:
        return None
    busy, _, stolen, idle = (now - then for now, then in zip(after, before, strict=True))
    return share_of_others(busy, idle, stolen, family_ticks(os.getpid()) - ticks)
