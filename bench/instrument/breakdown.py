"""The division of a step's time into parts, by the same code for every backend."""

from __future__ import annotations

from itertools import pairwise

import torch

from bench.instrument import Observer
from bench.record.events import PARTS
from bench.train.device import Stopwatch

_OTHERS = 4  # marks of a step besides the two of each micro-batch: begin, input, ready, end


class Breakdown(Observer):
    """A split of each step into parts that sum to it: input, forward, backward, exposed, optimiser.

    `exposed` is the exchange's time that overlaps nothing: from this rank's last gradient until
    every gradient is the mean over ranks. `exposed` includes the wait for ranks whose last gradient
    comes later. On a GPU all times are the device's own.
    """

    def __init__(self, network: torch.nn.Module, watch: Stopwatch, micro_batches: int) -> None:
        """Watch the gradients of `network`; call this before a backend wraps it."""
        self._watch, self._marks = watch, _OTHERS + 2 * micro_batches
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._gradient)

    def _gradient(self, _: torch.Tensor) -> None:
        self._watch.remark()  # of the last gradient so far

    def step_begin(self, step: int) -> None:
        self._watch.mark()

    def batch_ready(self, *_: torch.Tensor) -> None:
        self._watch.mark()

    def forward_done(self) -> None:
        self._watch.mark()
        self._watch.mark()  # which every gradient moves on

    def gradients_ready(self) -> None:
        self._watch.mark()

    def step_end(self) -> None:
        self._watch.mark()

    def take(self) -> dict[str, list[float]]:
        """Return {name: [steps]} since the last call, in seconds: `begin` (the start) and parts."""
        parts: dict[str, list[float]] = {name: [] for name in ("begin", *PARTS)}
        times, span = self._watch.times(), self._marks
        for marks in (times[at : at + span] for at in range(0, len(times), span)):
            laps = [after - before for before, after in pairwise(marks)]
            # micro-batches follow one another: forward, backward, forward, backward
            forward, backward = sum(laps[1:-2:2]), sum(laps[2:-2:2])
            step = (marks[0], laps[0], forward, backward, *laps[-2:])
            for values, value in zip(parts.values(), step, strict=True):
                values.append(value)
        return parts
