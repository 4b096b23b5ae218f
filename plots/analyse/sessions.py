"""Sessions, the level above launches: a day of one machine, and what another day may give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from bench.study.stats import ALPHA, SESSIONS, Estimate, Paired, geometric_mean, quantile

# sd of a log ratio between sessions, of this project's own: real training, and emulated
TAU = 0.02
TAU_EMULATED = 0.005
_EXECUTION = re.compile(r"session (\d{4}-\d\d-\d\d)T\S+ (boot \S+)")


def of(allocation: str, started: str, hosts: Sequence[str]) -> str:
    """The day and the machine's boot, or under a scheduler the hosts; '' where no log tells them.

    Executions of a job script that follow one another on a day meet one state of the machine.
    """
    if found := _EXECUTION.fullmatch(allocation):
        return " ".join(found.groups())
    return f"{started[:10]} on {', '.join(hosts)}" if started and hosts else ""


def apart(paired: Paired, sessions: Sequence[str]) -> Iterator[tuple[str, Estimate]]:
    """Each session's own ratio, side by side."""
    for session in dict.fromkeys(sessions):
        own = zip(sessions, paired.ratios, strict=True)
        yield session, geometric_mean([ratio for name, ratio in own if name == session])


def another_day(
    paired: Paired, sessions: Sequence[str], level: float, *, emulated: bool
) -> tuple[float, float] | None:
    """Where the ratio of one more session may lie: the prediction interval of t, from three on.

    Below three nothing here tells how sessions differ: tau stands for it, in today's and in the
    other day's ratio: sqrt(h^2 + 2 (1.96 tau)^2), with h half of the interval at `level`.
    """
    ends = paired.interval(level)
    if ends is None or paired.error_log is None:
        return None
    if (k := len(set(sessions))) >= SESSIONS:
        half = quantile(ALPHA, k - 1) * paired.error_log * math.sqrt(k + 1)
    else:
        tau = TAU_EMULATED if emulated else TAU
        half = math.hypot(math.log(ends[1] / ends[0]) / 2, math.sqrt(2) * 1.96 * tau)
    return paired.ratio * math.exp(-half), paired.ratio * math.exp(half)
