"""How far a rank is: its phase and its counts of batches and steps, for people to read and for the
watchdog to compare.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from bench.progress import Screen


@dataclass(frozen=True)
class Beat:
    """A rank's progress at one moment; the counts are None outside the loop. Two equal beats mean
    that nothing was finished.
    """

    phase: str
    pieces: int = 0
    batches: int | None = None
    steps: int | None = None


class Pulse:
    """Written by the main thread, read by the watchdog's; the loop's own counters are read where
    they stand.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._phase, self._ticks = "loading torch", 0
        self._counts: Callable[[], tuple[int, int]] | None = None
        self.rates: list[float] = []  # images/s of the windows so far
        self.passed = (
            False  # an `end` that says ok is written: whatever happens now, the record is complete
        )

    def enter(self, phase: str, counts: Callable[[], tuple[int, int]] | None = None) -> None:
        """From here on the rank is in `phase`;
        `counts` gives its batches received and steps done.
        """
        self._phase, self._counts = phase, counts
        self._screen.phase(phase)

    def leave(self) -> None:
        """All is written; the counters are let go, as they hold the model, and nothing more is
        shown.
        """
        self._phase, self._counts = "closing", None

    def tick(self) -> None:
        """One more piece of a phase that has no counter of its own is done."""
        self._ticks += 1

    def window(self, done: int, total: int, images_per_s: float) -> None:
        """A window was timed; called between windows."""
        self.rates.append(images_per_s)
        self._screen.window(done, total, images_per_s)

    def close(self) -> None:
        """Nothing more is drawn."""
        self._screen.close()

    def beat(self) -> Beat:
        """Where the rank is now."""
        pieces = self._ticks + len(
            sys.modules
        )  # loading torch from a busy file system may take minutes, module by module
        return Beat(self._phase, pieces, *(self._counts() if self._counts else (None, None)))
