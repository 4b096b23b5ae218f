"""What may watch a step: the loop tells an observer how far it is, and nothing is patched."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from bench.backends.protocol import Session


class Observer:
    """A watcher of steps that notes nothing; override its methods, whose time is part of a step."""

    def session_ready(self, session: Session) -> None:
        """Take the session that the loop has made; no step was taken yet."""

    def step_begin(self, step: int) -> None:
        """Note a step's start, before its batch is asked for; `step` counts from 0 with warm-up."""

    def batch_ready(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Record that the batch is on the device, and no gradient of the step before is left."""

    def forward_done(self) -> None:
        """Record that the loss of a micro-batch is there."""

    def backward_done(self) -> None:
        """Record that a micro-batch's backward pass has returned; the exchange may still go on."""

    def gradients_ready(self) -> None:
        """Mark the exchange, if any, as over; no gradient is clipped yet."""

    def step_end(self) -> None:
        """Record that the parameters are updated."""

    def take(self) -> dict[str, list[float]]:
        """Return lists by name, for the log, with a number for each step since the last call."""
        return {}


class Observers(Observer):
    """Several observers of one step, called in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        for part in vars(Observer):
            if not part.startswith("_") and part != "take":
                setattr(self, part, partial(_call_each, [getattr(one, part) for one in observers]))

    def take(self) -> dict[str, list[float]]:
        taken = [observer.take() for observer in self._observers]
        return {name: values for noted in taken for name, values in noted.items()}


def _call_each(calls: Sequence[Callable[..., None]], *args: object) -> None:
    for call in calls:
        call(*args)


class Sleep(Observer):
    """A known slowdown, to show that a study finds it: a sleep at the start of every step."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def step_begin(self, step: int) -> None:
        time.sleep(self._seconds)
