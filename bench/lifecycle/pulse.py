"""Progress of a rank: phase, batches and steps, for the screen and for the watchdog."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from bench.progress import Screen


@dataclass(frozen=True)
class Beat:
    """A rank's progress; counts are None outside the loop. Equal beats: nothing was finished."""

    phase: str
    pieces: int = 0
    batches: int | None = None
    steps: int | None = None

    @property
    def doing(self) -> str:
        """Say what is not finished."""
        if self.batches is None or self.steps is None:
            return self.phase
        if self.batches > self.steps:
            return f"in step {self.steps + 1}"
        return f"waiting for its batch of step {self.batches + 1}"


class Pulse:
    """Written by the main thread, read by the watchdog; reads the loop's own counters."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._phase, self._ticks = "loading torch", 0
        self._counts: Callable[[], tuple[int, int]] | None = None
        self.rates: list[float] = []  # images/s of the windows so far
        self.passed = False  # an `end` that says ok is written: the record is complete

    def enter(self, phase: str, counts: Callable[[], tuple[int, int]] | None = None) -> None:
        """Start a phase; `counts` gives the batches received and the steps done."""
        self._phase, self._counts = phase, counts
        self._screen.phase(phase)

    def leave(self) -> None:
        """Drop the counters, which hold the model, and show nothing more: the log is written."""
        self._phase, self._counts = "closing", None

    def tick(self) -> None:
        """Count one piece of a phase that has no counter of its own."""
        self._ticks += 1

    def window(self, done: int, total: int, images_per_s: float) -> None:
        """Note a timed window; called between windows."""
        self.rates.append(images_per_s)
        self._screen.window(done, total, images_per_s)

    def epoch(self, training: int, epoch: int, accuracy: float) -> None:
        """Note an epoch of a training, both counted from 0."""
        self._screen.epoch(training, epoch, accuracy)

    def close(self) -> None:
        """End the display."""
        self._screen.close()

    def beat(self) -> Beat:
        """Report the current progress."""
        # loading torch from a busy file system may take minutes, module by module
        pieces = self._ticks + len(sys.modules)
        return Beat(self._phase, pieces, *(self._counts() if self._counts else (None, None)))
