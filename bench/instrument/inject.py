"""A known slowdown: every rank sleeps in every step, so that a study can be seen to find it."""

from __future__ import annotations

import time

from bench.instrument import Observer


class Sleep(Observer):
    """Sleeps before the batch is asked for, inside the timed step."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def step_begin(self, step: int) -> None:
        time.sleep(self._seconds)
