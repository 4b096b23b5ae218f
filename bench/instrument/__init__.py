"""What may watch a step: the loop tells an observer how far it is, and nothing is patched."""

from __future__ import annotations


class Observer:
    """Watches nothing; override what is to be watched. What that costs is part of the step."""

    def step_begin(self, step: int) -> None:
        """Before the batch is asked for; `step` counts from 0, warm-up included."""

    def input_ready(self) -> None:
        """The batch is there, or under way to the device."""

    def forward_done(self) -> None:
        """The loss of a micro-batch is there."""

    def backward_done(self) -> None:
        """A micro-batch's backward pass has returned; the exchange may still be under way."""

    def gradients_ready(self) -> None:
        """Every gradient is the mean over ranks, not clipped yet."""

    def step_end(self) -> None:
        """The parameters are updated."""

    def take(self) -> dict[str, list[float]]:
        """What was noted since the last call, one number a step; the log gets it by its name."""
        return {}
