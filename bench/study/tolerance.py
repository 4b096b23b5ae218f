"""How far below its reference noise alone takes a machine: pure functions, one-sided, on logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.study.stats import SESSIONS, pooled_sd, quantile

Relation = Literal["within", "slower", "cannot tell"]

LEAST = 0.02  # falls up to it count as none, as differences do in a study
MOST = 0.05  # a fall of twice as much is to be found, or ruled out


@dataclass(frozen=True, kw_only=True)
class Fall:
    """A speed now over that of the reference, and how far below 1 that may lie."""

    relation: Relation
    ratio: float  # of geometric means: now over the reference
    limit: float  # the ratio below which it is slower
    noise: float  # the fall that noise alone exceeds with probability `level`, 0.03 is 3 %
    over_sessions: bool  # whether `noise` holds what differs between sessions
    launches: int  # now
    reference: float  # geometric mean of the reference


def fall(
    now: Sequence[float],
    sessions: Sequence[Sequence[float]],
    level: float,
    tolerance: float | None = None,
) -> Fall:
    """Compare the speeds of the launches of one session with those of the reference's sessions.

    It is slower below 1 minus the larger of `tolerance` and `noise`. Else it is within, if noise is
    no larger than the tolerance, or if a fall of twice the tolerance is ruled out: as much noise
    further down is still above it. Else it cannot be told. Without a `tolerance` falls of LEAST
    count as none, and MOST, twice, is to be ruled out; of fewer than SESSIONS sessions both are
    MOST, as nobody knows how much these differ. Raises ValueError for fewer than two launches, now
    or in all sessions.
    """
    logs = [np.log(np.asarray(session, float)) for session in sessions]
    current = np.log(np.asarray(now, float))
    settled = len(logs) >= SESSIONS
    noise = -math.expm1(-_noise(current, logs, settled, level))
    least, most = (LEAST if settled else MOST, MOST) if tolerance is None else (tolerance,) * 2
    values = np.array([session.mean() for session in logs]) if settled else np.concatenate(logs)
    reference, limit = float(values.mean()), 1 - max(least, noise)
    ratio = math.exp(float(current.mean()) - reference)
    is_clear = noise <= most or ratio * (1 - noise) > (1 - most) ** 2
    relation: Relation = "within" if is_clear else "cannot tell"
    return Fall(
        relation="slower" if ratio < limit else relation,
        ratio=ratio,
        limit=limit,
        noise=noise,
        over_sessions=settled,
        launches=len(current),
        reference=math.exp(reference),
    )


def _noise(current: np.ndarray, logs: Sequence[np.ndarray], settled: bool, level: float) -> float:
    """End of a one-sided prediction interval of Student's t (Hahn & Meeker 1991, chapter 4).

    Of a further session's mean by the means of sessions, where they are `settled`, else of the mean
    of further launches by launches; or the limit of the current mean itself, if that is wider.
    """
    within = pooled_sd(session.tolist() for session in logs)
    n, sizes = len(current), [len(session) for session in logs]
    if n < 2 or within is None:
        raise ValueError("two launches are needed, now and in one of the sessions")
    if settled:
        means = np.array([session.mean() for session in logs])
        fewer = max(0.0, 1 / n - float(np.mean([1 / size for size in sizes])))
        variance = float(means.var(ddof=1)) * (1 + 1 / len(means)) + within**2 * fewer
        freedom = len(means) - 1
    else:
        variance = within**2 * (1 / n + 1 / sum(sizes))
        freedom = sum(sizes) - len(sizes)
    of_now = float(current.std(ddof=1)) / math.sqrt(n)
    # beyond a quantile's both sides lies twice what lies beyond one
    of_machine, of_now_alone = quantile(2 * level, freedom), quantile(2 * level, n - 1)
    return max(of_machine * math.sqrt(variance), of_now_alone * of_now)
