"""Parity: the gradients that a step exchanged, against the mean of those that each rank has alone.

A rank's own gradients come from autograd on the bare network, so no hook of a framework sees them;
they meet as gathered objects, not by the exchange that is checked.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import torch

from bench.backends import catalogue
from bench.backends.protocol import Backend, whole
from bench.config import RunConfig
from bench.instrument import Observer
from bench.train import precision
from bench.train.loss import mean_loss

Gradients = list[torch.Tensor | None]  # of the trained parameters, in order of definition

STEP = 2  # of a run: the last of the shortest warm-up; DDP has rebuilt its buckets by then
SAMPLED = 1024  # elements compared of each tensor of a run
# What rounding explains of max|difference| / max|gradient|. bfloat16 has 8 bits. Two roundings to
# the 11 bits of float16 are half of the last one; on the wire every rank adds one of its own.
_ROUNDING = {"float64": 1e-12, "bf16": 2.0**-7, "fp16": 2.0**-10}
_ROUNDING_FLOAT32 = 1e-5
_SMALLEST = {"fp16": 2.0**-14}  # below it float16 has fewer bits
_OWN_NOISE = 100  # times what two computations on one rank differ by


def own_gradients(
    network: torch.nn.Module, config: RunConfig, images: torch.Tensor, labels: torch.Tensor
) -> Gradients:
    """Gradients of one shard alone, from images [n, 3, size, size] and labels [n].

    The gradients in the network stay as they are.
    """
    trained = [p for p in network.parameters() if p.requires_grad]
    total: Gradients = [None] * len(trained)
    size, parts = config.samples_per_microbatch, config.accumulate
    for part in zip(images.split(size), labels.split(size), strict=True):
        with precision.autocast(config):
            loss = mean_loss(config, network(part[0]), part[1]) / parts
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        total = [
            partial if gradient is None else gradient if partial is None else partial + gradient
            for partial, gradient in zip(total, gradients, strict=True)
        ]
    return total


def mean(shards: Sequence[Gradients]) -> Gradients:
    """Mean gradients of the shards, summed in their order; bfloat16 in float32, rounded once."""
    of_each = zip(*shards, strict=True)
    return [_mean([g for g in gradients if g is not None], len(shards)) for gradients in of_each]


def _mean(gradients: list[torch.Tensor], shards: int) -> torch.Tensor | None:
    """Mean over all shards, some of which may not have used the parameter."""
    if not gradients:
        return None
    wide = [g.float() if g.dtype == torch.bfloat16 else g for g in gradients]
    total = wide[0]
    for gradient in wide[1:]:
        total = total + gradient
    return (total / shards).to(gradients[0].dtype)


def relative(gradients: Gradients, expected: Gradients, floor: float = 0.0) -> list[float]:
    """max|gradient - expected| / max|expected| of each tensor, by at least `floor`."""
    return [_relative(f, w, floor) for f, w in zip(gradients, expected, strict=True)]


def _relative(gradient: torch.Tensor | None, expected: torch.Tensor | None, floor: float) -> float:
    """No gradient is as good as zeros; infinite where the denominator is 0, or a NaN stands."""
    if gradient is None or expected is None:
        present = expected if gradient is None else gradient
        return math.inf if present is not None and present.any() else 0.0
    equal = (gradient == expected) | (gradient.isnan() & expected.isnan())
    if equal.all():
        return 0.0
    difference = (gradient.double() - expected.double()).abs()[~equal].max().item()
    scale = max(expected.double().abs().nan_to_num(0.0, 0.0).max().item(), floor)
    ratio = difference / scale if scale else math.inf
    return math.inf if math.isnan(ratio) else ratio


def rounding(config: RunConfig) -> float:
    """Largest relative difference that another order of summation explains."""
    if config.compression != "none":
        return _ROUNDING[config.compression] * max(2, config.world_size) / 2
    return _ROUNDING.get(config.precision, _ROUNDING_FLOAT32)


def tolerance(config: RunConfig) -> float:
    """`rounding`, but 0 where order cannot matter: two addends and a division by two are exact."""
    return 0.0 if config.world_size <= 2 and config.compression == "none" else rounding(config)


@dataclass(frozen=True, kw_only=True)
class StepParity:
    """Parity of one checked step; differences are the largest over tensors and ranks."""

    step: int
    elements: int  # compared on every rank
    relative_difference: float
    tensor: str  # that has it; '' where nothing differs
    tolerance: float
    not_deterministic: list[str]  # tensors that a rank computes otherwise when it does so again
    own_noise: float  # relative difference of these two computations

    @property
    def allowed(self) -> float:
        """The tolerance, unless a rank does not agree with itself."""
        return max(self.tolerance, _OWN_NOISE * self.own_noise)

    @property
    def holds(self) -> bool:
        return self.relative_difference <= self.allowed

    def record(self) -> dict[str, Any]:
        """This result as plain values, for a log."""
        return {**asdict(self), "allowed": self.allowed, "holds": self.holds}


class Parity(Observer):
    """Checks the named steps, at the price of a forward and backward pass more on each rank.

    Where anything differs, each rank computes once more: what it cannot repeat is its own noise.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        network: torch.nn.Module,
        steps: Sequence[int] = (STEP,),
        sampled: int = SAMPLED,
    ) -> None:
        self._config, self._backend, self._network = config, backend, network
        self._steps, self._due = steps, False
        # a network whose parameters lie in parts cannot compute without its backend: a twin does
        divided = catalogue.facts(config.backend).divides
        self._bare = copy.deepcopy(network) if divided else network
        parameters = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in parameters]
        generator = torch.Generator().manual_seed(config.seed)
        self._places = [_places(p.numel(), sampled, generator) for _, p in parameters]
        self.results: list[StepParity] = []
        self.exchanged: list[Gradients] = []  # of each checked step, the elements compared

    @property
    def holds(self) -> bool:
        """Whether every step that was to be checked was, and agrees."""
        return len(self.results) == len(self._steps) and all(step.holds for step in self.results)

    def record(self) -> list[dict[str, Any]]:
        """Results of all checked steps, as plain values for a log."""
        return [result.record() for result in self.results]

    def step_begin(self, step: int) -> None:
        self._step, self._due = step, step in self._steps

    def batch_ready(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        if self._due:
            if self._bare is not self._network:
                _copy_whole(self._network, self._bare)
            self._batch, self._before = (images, labels), _PassState(self._bare)
            self._local = self._compute()

    def gradients_ready(self) -> None:
        if self._due:
            self._compare()
            del self._batch, self._before, self._local

    def _compute(self) -> Gradients:
        """This rank's own gradients, computed from where the step began; leaves no other trace."""
        now = _PassState(self._bare)
        self._before.restore()
        gradients = own_gradients(self._bare, self._config, *self._batch)
        now.restore()
        return self._sample(gradients)

    def _sample(self, gradients: Gradients) -> Gradients:
        taken = zip(gradients, self._places, strict=True)
        return [None if g is None else g.reshape(-1)[at.to(g.device)].cpu() for g, at in taken]

    def _compare(self) -> None:
        trained = (p.grad for p in self._network.parameters() if p.requires_grad)
        exchanged = self._sample([g if g is None else whole(g) for g in trained])
        keeps_own = self._config.ranks_part  # then every rank must keep its own
        expected = self._local if keeps_own else mean(self._backend.gather(self._local))
        floor = _SMALLEST.get(self._config.compression, 0.0)
        differences = self._over_ranks(relative(exchanged, expected, floor))
        noise = [0.0] * len(differences)
        if largest := max(differences, default=0.0):  # the same on every rank
            noise = self._over_ranks(relative(self._compute(), self._local))
        noisy = [name for name, difference in zip(self.names, noise, strict=True) if difference]
        self.exchanged.append(exchanged)
        self.results.append(
            StepParity(
                step=self._step,
                elements=sum(map(len, self._places)),
                relative_difference=largest,
                tensor=self.names[differences.index(largest)] if largest else "",
                tolerance=rounding(self._config) if noisy else tolerance(self._config),
                not_deterministic=noisy,
                own_noise=max(noise, default=0.0),
            )
        )

    def _over_ranks(self, values: list[float]) -> list[float]:
        """The largest of each tensor."""
        return [max(by_rank) for by_rank in zip(*self._backend.gather(values), strict=True)]


def _copy_whole(network: torch.nn.Module, twin: torch.nn.Module) -> None:
    """Give a twin what a network of parts has now; every rank must call."""
    with torch.no_grad():
        present = chain(network.parameters(), network.buffers())
        for source, target in zip(present, chain(twin.parameters(), twin.buffers()), strict=True):
            target.copy_(whole(source))


def _places(elements: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """Which elements of a tensor are compared: all, or `most` that are drawn."""
    if elements <= most:
        return torch.arange(elements)
    return torch.randint(elements, (most,), generator=generator)


class _PassState:
    """What a forward pass changes besides gradients: buffers, and torch's random numbers."""

    def __init__(self, network: torch.nn.Module) -> None:
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in network.buffers()]
        self._random = torch.get_rng_state()
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._on_gpu = torch.cuda.get_rng_state() if cuda else None

    def restore(self) -> None:
        with torch.no_grad():
            for buffer, saved in self._buffers:
                buffer.copy_(saved)
        torch.set_rng_state(self._random)
        if self._on_gpu is not None:
            torch.cuda.set_rng_state(self._on_gpu)
