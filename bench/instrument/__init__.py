"""Observers, which the training loop calls at points of each step, so that nothing is patched."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from bench.backends.protocol import Session


class Observer:
    """A base class that observes nothing. Time in a subclass's methods is part of the step."""

    def session_ready(self, session: Session) -> None:
        """Take the loop's session, before the first step."""

    def step_begin(self, step: int) -> None:
        """Record the start of `step` (from 0, warm-up included), before its batch is loaded."""

    def batch_ready(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Record that the batch is on the device and the last step's gradients are gone."""

    def forward_done(self) -> None:
        """Record that the loss of a micro-batch is computed."""

    def backward_done(self) -> None:
        """Record that a micro-batch's backward pass has returned; the exchange may still go on."""

    def gradients_ready(self) -> None:
        """Record that the exchange, if any, is over; gradients are not clipped yet."""

    def step_end(self) -> None:
        """Record that the parameters are updated."""

    def take(self) -> dict[str, list[float]]:
        """Return series for the log by name, each with one number per step since the last call."""
        return {}


class Observers(Observer):
    """Several observers of one step, called in the given order."""

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
    """An observer that slows every step by a sleep, to test that a study finds the slowdown."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def step_begin(self, step: int) -> None:
        time.sleep(self._seconds)
