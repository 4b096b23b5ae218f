"""Parts of a step, on a clock that stands still but where the step is told to take its time."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.backends.protocol import Session
from bench.config import RunConfig
from bench.instrument.breakdown import Breakdown
from bench.train.device import Stopwatch
from bench.train.loop import Input, Loop


class _Clock:
    now = 100.0

    def spend(self, seconds: float) -> None:
        self.now += seconds


class _Slow(torch.autograd.Function):
    """Takes 2 s forward and 3 s backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, clock: _Clock) -> torch.Tensor:
        ctx.clock = clock
        clock.spend(2)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.clock.spend(3)
        return gradient, None


class _Network(torch.nn.Module):
    """The gradient of `late` is there 3 s after that of `early`."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self.late, self.early = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
        self.clock = clock

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slowed = _Slow.apply(self.late(x), self.clock)  # type: ignore[no-untyped-call]
        logits: torch.Tensor = self.early(slowed)
        return logits


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_parts_of_a_step_are_all_of_it(micro_batches: int) -> None:
    clock = _Clock()
    network = _Network(clock)

    class Exchanging(Session):
        def synchronize_gradients(self) -> None:
            clock.spend(5)

        def step(self) -> None:
            clock.spend(7)

    def batches() -> Iterator[Any]:
        while True:
            clock.spend(11)
            yield torch.ones(4, 4), torch.zeros(4, dtype=torch.long)

    config = RunConfig(batch_per_rank=4, accumulate=micro_batches)
    observer = Breakdown(network, Stopwatch(lambda: clock.now), micro_batches)
    data = Input(config, batches(), torch.device("cpu"))
    backend: Any = SimpleNamespace(wrap=lambda *wrapped: Exchanging(*wrapped[:2]))
    loop = Loop(config, backend, network, data, observer)
    parts = {"input": 11, "forward": 2 * micro_batches, "backward": 3 * micro_batches}
    parts |= {"exposed": 5, "optimiser": 7}
    for steps in (2, 1):  # each window's own
        begun = clock.now
        for _ in range(steps):
            loop.step()
            clock.spend(13)  # between steps, of which it takes no notice
        whole = sum(parts.values()) + 13
        begins = [begun + step * whole for step in range(steps)]
        wanted = {name: [seconds] * steps for name, seconds in parts.items()}
        assert observer.take() == {"begin": begins, **wanted}
