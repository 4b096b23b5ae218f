"""The looks of a study, which are the numbers of launches at which it decides."""

from __future__ import annotations

ALPHA = 0.05  # the error that a decision may make, and what an interval may miss
MIN_LAUNCHES = 6  # below six pairs an exact sign flip cannot reach 5 %: the smallest p is 2 / 2^n
MAX_LAUNCHES = 10_000
STEP = 2  # launches added between looks: each side of a pair is first in one of them


def schedule(launches: int, max_launches: int) -> tuple[int, ...]:
    """List the launches at each look: max(launches, MIN_LAUNCHES) to `max_launches`, by STEP."""
    return tuple(range(max(launches, MIN_LAUNCHES), max_launches + 1, STEP))
