"""Progress of a rank: phase, batches and steps, for the screen and for the watchdog."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.progress import quantity, say


class Pulse:
    """Written by the main thread, read by the watchdog; reads the loop's own counters.

    What is `shown`, by one rank, are lines on standard error, between windows only.
    """

    def __init__(self, *, shown: bool) -> None:
        self._say: Callable[[str], object] = say if shown else str
        self._phase, self._ticks = "loading torch", 0
        self._counts: Callable[[], tuple[int, int]] | None = None
        self.rates: list[float] = []  # images/s of the windows so far
        self.passed = False  # an `end` that says ok is written: the record is complete

    def enter(self, phase: str, counts: Callable[[], tuple[int, int]] | None = None) -> None:
        """Start a phase; `counts` gives the batches received and the steps done."""
        self._phase, self._counts = phase, counts
        self._say(phase)

    def leave(self) -> None:
        """Drop the counters, which hold the model: the log is written."""
        self._phase, self._counts = "closing", None

    def tick(self) -> None:
        """Count one piece of a phase that has no counter of its own."""
        self._ticks += 1

    def window(self, done: int, total: int, images_per_s: float) -> None:
        """Note a timed window; called between windows."""
        self.rates.append(images_per_s)
        self._say(f"window {done}/{total}: {quantity(images_per_s)} images/s")

    def epoch(self, training: int, epoch: int, accuracy: float) -> None:
        """Note an epoch of a training, both counted from 0."""
        self._say(f"training {training + 1}, epoch {epoch + 1}: {100 * accuracy:.2f} % right")

    def beat(self) -> tuple[object, ...]:
        """Read the progress so far; where two readings are equal, nothing was finished between."""
        # loading torch from a busy file system may take minutes, module by module
        return self._phase, self._ticks + len(sys.modules), self._counts and self._counts()

    def doing(self) -> str:
        """Say what is not finished."""
        if self._counts is None:
            return self._phase
        batches, steps = self._counts()
        waiting = f"waiting for its batch of step {batches + 1}"
        return f"in step {steps + 1}" if batches > steps else waiting
