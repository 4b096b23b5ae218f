"""Emulated compute: passes that sleep as long as recorded, and yield real gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from bench.config import RunConfig, UsageError
from bench.instrument import Observer
from bench.instrument.timeline import Timeline, read_for

_CHECKED = 8  # every such gradient is checked in a timed step, all of them during warm-up
# gradients that travel in 16 bits are rounded; the others are exact but for the order of the sum
_ROUNDED, _EXACT = 2e-2, 1e-4


def weight(rank: int, ranks: int) -> float:
    """Return the factor of a rank's gradients, different on each: ((rank + 1) / ranks) ** 2."""
    return float((rank + 1) / ranks) ** 2


def mean_weight(ranks: int) -> float:
    """Compute the mean of `weight` over all ranks by the formula for the sum of squares."""
    return (ranks + 1) * (2 * ranks + 1) / (6 * ranks**2)


def size(index: int, step: int) -> int:
    """Return the number to write into gradient `index` at `step`, without the factor `weight`."""
    return 1 + (5 * index + step) % 7


class Emulation(Observer):
    """An observer whose `model` sleeps instead of computing. It checks exchanged gradients.

    Raises UsageError if the timeline does not fit, RuntimeError if a checked gradient is wrong.
    """

    def __init__(self, network: torch.nn.Module, config: RunConfig, rank: int) -> None:
        timeline, digest = read_for(config)
        parameters = dict(network.named_parameters())
        _require_same(parameters, timeline)
        self._names = [gradient.name for gradient in timeline.gradients]
        self._parameters = [parameters[name] for name in self._names]
        # as an accelerator's memory, which costs this machine nothing, they stay where they are
        self._gradients = [torch.zeros_like(p, requires_grad=False) for p in self._parameters]
        # compute takes as much longer as there are more images
        scale = config.samples_per_rank / timeline.images
        self._forward_seconds = scale * timeline.forward_seconds
        self._ready = [scale * gradient.ready_seconds for gradient in timeline.gradients]
        self._end_seconds = scale * timeline.backward_seconds
        self._last = torch.zeros((), requires_grad=True)  # a leaf: the end of the backward pass
        self._weight = weight(rank, config.world_size)
        # without exchange every rank keeps its own
        ranks = config.world_size
        self._expected = self._weight if config.ranks_part else mean_weight(ranks)
        self._tolerance = _ROUNDED if config.precision == "bf16" else _EXACT
        self._warmup_steps = config.warmup_steps
        self._step, self._began = 0, 0.0
        self.averaged_steps = 0
        self.model = _Sleeper(network, self._forward)
        self.facts = {
            "emulated": True,
            "loss": "not checked: nothing is computed, and one class costs no time, so it is 0",
            "input": "blank images of one pixel, which cost nothing",
            "scale": "compute takes time in proportion to the images of a rank",
            "timeline": config.emulate.name if config.emulate else "",
            "timeline_sha256": digest,
            "timeline_source": timeline.source,
            "timeline_images": timeline.images,
            "compute_seconds": scale * (timeline.forward_seconds + timeline.backward_seconds),
        }

    def step_begin(self, step: int) -> None:
        self._step = step

    def _forward(self, images: torch.Tensor) -> torch.Tensor:
        """Sleep, and return scores [images, 1]; backward gives each gradient at its recorded time.

        The recorded times include the loss; with scores of one class, computing it costs nothing.
        """
        began = time.perf_counter()
        link: Any = _Give.apply
        chain: torch.Tensor = link(torch.zeros(()), self._last, self._finish)
        for index in reversed(range(len(self._parameters))):
            chain = link(chain, self._parameters[index], partial(self._give, index))
        _sleep_until(began + self._forward_seconds)
        return chain.expand(len(images), 1)

    def _give(self, index: int) -> torch.Tensor:
        """Return gradient `index` at its recorded time; autograd calls this in recorded order."""
        if index == 0:
            self._began = time.perf_counter()
        gradient = self._gradients[index]
        # all of it, then a row in each step: what the others hold is still the mean of before
        part = gradient if self._step == 0 else _row(gradient, self._step)
        part.fill_(size(index, self._step) * self._weight)
        _sleep_until(self._began + self._ready[index])
        return gradient.detach()  # shares the memory, so that autograd takes it over without a copy

    def _finish(self) -> torch.Tensor:
        _sleep_until(self._began + self._end_seconds)
        return torch.zeros(())

    def gradients_ready(self) -> None:
        step = self._step
        every = 1 if step < self._warmup_steps else _CHECKED
        chosen = range(step % every, len(self._parameters), every)
        gradients: list[Any] = [self._parameters[index].grad for index in chosen]
        parts = gradients if step == 0 else [_row(gradient, step) for gradient in gradients]
        # no `tolist` of each: thousands of calls, and a step is being timed
        extremes = torch.stack([end for part in parts for end in part.aminmax()]).double()
        sizes = torch.tensor([size(index, step) for index in chosen], dtype=torch.float64)
        expected = self._expected * sizes.repeat_interleave(2)
        wrong = ((extremes - expected).abs() <= self._tolerance * expected).logical_not().nonzero()
        if len(wrong):
            entry = int(wrong[0])
            name = self._names[chosen[entry // 2]]
            fault = f"emulate: in step {step} the exchanged gradient of {name} holds"
            raise RuntimeError(
                f"{fault} {extremes[entry]:g}, and the mean over ranks is {expected[entry]:g}"
            )
        self.averaged_steps += 1


class _Sleeper(torch.nn.Module):
    """A model with the parameters and buffers of `network`, whose forward pass is `forward`."""

    def __init__(
        self, network: torch.nn.Module, forward: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        super().__init__()
        self.network, self._forward = network, forward

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self._forward(images)


class _Give(torch.autograd.Function):
    """An identity of `chain`; its backward pass takes the gradient of `leaf` from `give()`."""

    @staticmethod
    def forward(
        ctx: Any, chain: torch.Tensor, leaf: torch.Tensor, give: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        ctx.give = give
        return chain.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0], ctx.give(), None


def _row(tensor: torch.Tensor, step: int) -> torch.Tensor:
    rows: torch.Tensor = torch.atleast_1d(tensor)  # a view, of a single number too
    return rows[step % len(rows)]


def _sleep_until(moment: float) -> None:
    """Sleep until a `moment` of time.perf_counter, so that oversleep does not add up over calls."""
    if (remaining := moment - time.perf_counter()) > 0:
        time.sleep(remaining)


def _require_same(parameters: Mapping[str, torch.nn.Parameter], timeline: Timeline) -> None:
    trained = {name: p for name, p in parameters.items() if p.requires_grad}
    recorded = {g.name: (g.shape, g.bytes) for g in timeline.gradients}
    for name in trained.keys() | recorded.keys():
        parameter = trained.get(name)
        if parameter is None or (tuple(parameter.shape), parameter.nbytes) != recorded.get(name):
            rule = f"the timeline's parameters are not the model's: {name} is not the same in both"
            raise UsageError(f"{rule}; record one of this model with python -m bench timeline")
