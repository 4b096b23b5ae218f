"""The parts of a run's steps: means over ranks and steps of what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.record import Run
from bench.record.events import PARTS


def parts_of(run: Run) -> dict[str, float]:
    """Return the mean seconds of each part of a step; {} if not observed.

    `exposed` is made of `waiting`, from a rank's last gradient to that of the slowest rank, and
    `reducing`, the rest. Nobody waits for another where nothing is exchanged.
    """
    config = run.config
    assert config is not None
    windows = [e for e in run.events if e["event"] == "breakdown" and e["phase"] == "window"]
    if not windows:
        return {}
    means = {name: float(np.mean([event[name] for event in windows])) for name in PARTS}
    one_clock = config.device == "cpu" and len(run.hosts) == 1
    waits = [0.0 if config.ranks_part else _waiting(event, one_clock) for event in windows]
    waiting = float(np.mean(waits))
    return means | {"waiting": waiting, "reducing": means["exposed"] - waiting}


def _waiting(event: Mapping[str, Any], one_clock: bool) -> float:
    """Compute the mean wait, in seconds, over ranks and steps of one window.

    An exchange ends on all ranks at almost one time. Clocks of several hosts, or devices, are set
    by it: the median over steps of its end is the same on every rank.
    """
    before = ("begin", "input", "forward", "backward")
    last = np.sum([event[name] for name in before], axis=0)  # gradient: [rank][step]
    if not one_clock:
        end = last + np.asarray(event["exposed"])
        last -= np.median(end - end[0], axis=1, keepdims=True)
    return float(np.mean(last.max(axis=0) - last))
