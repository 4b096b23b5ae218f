"""Sessions, the level above launches: what one machine measured without a long pause, and what
another day may give.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from bench.study.stats import SESSIONS, Estimate, Paired, geometric_mean, quantile

PAUSE_S = 3 * 3600.0  # without a start of a run; from then on a machine may be in another state
# sd of a log ratio between sessions, of this project's own: real training, and emulated
TAU = 0.02
TAU_EMULATED = 0.005
_EXECUTION = re.compile(r"session \S+ (boot \S+)")


def named(
    allocations: Sequence[str], hosts: Sequence[Sequence[str]], began_s: Sequence[float]
) -> list[str]:
    """Name the session of each run: its first start and its machine; '' where no log tells them.

    A session is of one boot, or of the same nodes under a scheduler, and ends where no run starts
    for PAUSE_S: hours change the state of a machine, and midnight does not.
    """
    names = [""] * len(began_s)
    last: dict[str, tuple[float, str]] = {}  # by machine: its last start, and the session
    known = [run for run, nodes in enumerate(hosts) if nodes and not math.isnan(began_s[run])]
    for run in sorted(known, key=began_s.__getitem__):
        boot = _EXECUTION.fullmatch(allocations[run])
        machine = boot[1] if boot else f"on {', '.join(hosts[run])}"
        before_s, session = last.get(machine, (-math.inf, ""))
        if began_s[run] - before_s >= PAUSE_S:
            session = f"{datetime.fromtimestamp(began_s[run], UTC):%Y-%m-%d %H:%M} {machine}"
        last[machine] = began_s[run], session
        names[run] = session
    return names


def apart(paired: Paired, sessions: Sequence[str]) -> Iterator[tuple[str, Estimate]]:
    """Estimate each session's own ratio, side by side."""
    for session in dict.fromkeys(sessions):
        ratios = zip(sessions, paired.ratios, strict=True)
        yield session, geometric_mean([ratio for name, ratio in ratios if name == session])


def another_day(
    paired: Paired, sessions: Sequence[str], level: float, *, emulated: bool
) -> tuple[float, float] | None:
    """Predict where another session's ratio may lie: the prediction interval of t, from three on,
    at the level of the ratio's interval, which it therefore contains.

    Below three nothing here tells how sessions differ: tau stands for it, in today's and in the
    other day's ratio: sqrt(h^2 + 2 (1.96 tau)^2), with h half of the interval at `level`.
    """
    ends = paired.interval(level)
    if ends is None or paired.error_log is None:
        return None
    if (k := len(set(sessions))) >= SESSIONS:
        half = quantile(level, k - 1) * paired.error_log * math.sqrt(k + 1)
    else:
        tau = TAU_EMULATED if emulated else TAU
        half = math.hypot(math.log(ends[1] / ends[0]) / 2, math.sqrt(2) * 1.96 * tau)
    return paired.ratio * math.exp(-half), paired.ratio * math.exp(half)
