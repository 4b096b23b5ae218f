"""How large a study may be, and how small it may be to say anything."""

from __future__ import annotations

ALPHA = 0.05  # the error that a decision may make, and what an interval may miss
MIN_LAUNCHES = 6  # below six pairs an exact sign flip cannot reach 5 %: the smallest p is 2 / 2^n
MAX_LAUNCHES = 10_000
MAX_RUNS = 100_000  # of one study: as many as a command still plans in seconds
MAX_SECONDS = 30 * 86_400
MAX_LENGTH = 1000  # of a list
