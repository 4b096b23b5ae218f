"""Parity: the gradients that a step exchanged, against the mean of those that each rank has alone.

A rank's own gradients come from autograd on the bare network, so no hook of a framework sees them;
they meet as gathered objects, not by the exchange that is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from bench.backends.protocol import Backend, Session
from bench.config import RunConfig
from bench.instrument import Observer
from bench.instrument.pass_state import PassState
from bench.models.requirements import require_scores
from bench.train import precision

Gradients = list[torch.Tensor | None]  # of the trained parameters, in order of definition

STEP = 2  # of a run: the last of the shortest warm-up; DDP has rebuilt its buckets by then
_PASSES = 3  # at most, to learn what a rank differs from itself by
SAMPLED = 1024  # elements compared of each tensor of a run
# What rounding explains of max|difference| / max|gradient|. bfloat16 has 8 bits. Two roundings to
# the 11 bits of float16 are half of the last one; on the wire every rank adds one of its own.
_ROUNDING = {"float64": 1e-12, "bf16": 2.0**-7}
_ROUNDING_FLOAT32 = 1e-5
# A rank that computes twice may round otherwise: kernels of a GPU add in no fixed order. What the
# mean may differ by is then so many times what the rank differs from itself by ...
_OWN_NOISE = 100
# ... and at most this, whatever the rank does: beyond it nothing is proven. A float32 sum of 10,000
# terms in another order may part by that much where they cancel; bfloat16 and TF32 by a few of
# their last bits.
_LIMIT = {"float64": 1e-10, "tf32": 2.0**-7, "bf16-mixed": 2.0**-5, "bf16": 2.0**-5}
_LIMIT_FLOAT32 = 1e-3


class RecomputedError(Exception):
    """A forward pass that backward will do again, as reentrant checkpoints do.

    torch gives no gradients of it by value, but into `.grad` alone.
    """


def own_gradients(
    network: torch.nn.Module,
    config: RunConfig,
    images: torch.Tensor,
    labels: torch.Tensor,
    stand_ins: bool = False,
    classes: int | None = None,
) -> Gradients:
    """Compute the gradients of one shard alone, from images [n, 3, size, size] and labels [n].

    The gradients in the network stay as they are. A parameter that the pass froze has none.
    `stand_ins` take the parameters' places meanwhile; without them RecomputedError may be raised.
    With `classes` raises UsageError for an output that is no scores.
    """
    if stand_ins:
        with _stand_ins(network) as parameters:
            return _summed(network, config, parameters, images, labels, _by_backward, classes)
    parameters = [p for p in network.parameters() if p.requires_grad]
    return _summed(network, config, parameters, images, labels, _by_value, classes)


def _summed(
    network: torch.nn.Module,
    config: RunConfig,
    parameters: Sequence[torch.Tensor],
    images: torch.Tensor,
    labels: torch.Tensor,
    gradients_of: Callable[[torch.Tensor, Sequence[torch.Tensor]], Gradients],
    classes: int | None,
) -> Gradients:
    """Sum the gradients of the micro-batches in their order."""
    total: Gradients = [None] * len(parameters)
    size, parts = config.samples_per_microbatch, config.accumulate
    for part in zip(images.split(size), labels.split(size), strict=True):
        with precision.autocast(config):
            scores = network(part[0])
            if classes is not None:
                require_scores(scores, part[1], classes, config)
            smoothing = config.label_smoothing
            loss = cross_entropy(scores, part[1], label_smoothing=smoothing) / parts
        total = [
            partial if gradient is None else gradient if partial is None else partial + gradient
            for partial, gradient in zip(total, gradients_of(loss, parameters), strict=True)
        ]
    return total


def _by_value(loss: torch.Tensor, parameters: Sequence[torch.Tensor]) -> Gradients:
    if _recomputes(loss):
        raise RecomputedError
    trained = [p for p in parameters if p.requires_grad]
    each = iter(torch.autograd.grad(loss, trained, allow_unused=True) if trained else ())
    return [next(each) if p.requires_grad else None for p in parameters]


def _by_backward(loss: torch.Tensor, parameters: Sequence[torch.Tensor]) -> Gradients:
    for parameter in parameters:
        parameter.grad = None
    loss.backward()
    return [p.grad for p in parameters]


def _recomputes(loss: torch.Tensor) -> bool:
    """Find a node of torch's reentrant checkpoint among those that made `loss`."""
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            return True
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
    return False


@contextmanager
def _stand_ins(network: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Put parameters of the same values in the places of the network's own, for their `.grad`.

    No hook of a framework sees them; the user's hooks on a tensor do.
    """
    by_id: dict[int, torch.nn.Parameter] = {}
    for parameter in network.parameters():
        stand_in = torch.nn.Parameter(parameter.detach(), parameter.requires_grad)
        for hook in (parameter._backward_hooks or {}).values():
            stand_in.register_hook(hook)
        by_id[id(parameter)] = stand_in
    places = [
        (module._parameters, name, parameter)
        for module in network.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
    ]
    trained = [by_id[id(p)] for p in network.parameters() if p.requires_grad]
    for table, name, parameter in places:
        table[name] = by_id[id(parameter)]
    try:
        yield [*trained]
    finally:
        for table, name, parameter in places:
            table[name] = parameter


def mean(shards: Sequence[Gradients]) -> Gradients:
    """Average the shards' gradients, summed in their order; bfloat16 in float32, rounded once."""
    of_each = zip(*shards, strict=True)
    return [_mean([g for g in gradients if g is not None], len(shards)) for gradients in of_each]


def _mean(gradients: list[torch.Tensor], shards: int) -> torch.Tensor | None:
    """Average over all shards, some of which may not have used the parameter."""
    if not gradients:
        return None
    wide = [g.float() if g.dtype == torch.bfloat16 else g for g in gradients]
    total = wide[0]
    for gradient in wide[1:]:
        total = total + gradient
    return (total / shards).to(gradients[0].dtype)


def relative(gradients: Gradients, expected: Gradients, floor: float = 0.0) -> list[float]:
    """Compute max|gradient - expected| / max|expected|, at least `floor`, of each tensor."""
    return [_relative(f, w, floor) for f, w in zip(gradients, expected, strict=True)]


def _relative(gradient: torch.Tensor | None, expected: torch.Tensor | None, floor: float) -> float:
    """Compare two tensors, None as zeros; infinite where the denominator is 0, or a NaN stands."""
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


def largest(gradients: Gradients) -> float:
    """Find the largest |gradient| of all tensors; 0 where there is none."""
    filled = [g for g in gradients if g is not None and g.numel()]
    ends = (g.double().abs().nan_to_num(0.0, 0.0, 0.0).max().item() for g in filled)
    return max(ends, default=0.0)


def rounding(config: RunConfig) -> float:
    """Estimate the largest relative difference that another order of summation explains."""
    return _ROUNDING.get(config.precision, _ROUNDING_FLOAT32)


def tolerance(config: RunConfig) -> float:
    """Return `rounding`, but 0 where order cannot matter: adding two and halving are exact."""
    return 0.0 if config.world_size <= 2 else rounding(config)


def limit(config: RunConfig) -> float:
    """Return the relative difference any rounding can explain; beyond it nothing is proven."""
    return max(_LIMIT.get(config.precision, _LIMIT_FLOAT32), rounding(config))


@dataclass(frozen=True, kw_only=True)
class StepParity:
    """Parity of one checked step. The differences are those of `tensor`, the worst one."""

    step: int
    elements: int  # compared on every rank
    relative_difference: float  # largest over ranks
    tensor: str  # '' where nothing differs
    allowed: float  # for this tensor
    own_noise: float  # what two computations of it on one rank differ by
    not_deterministic: list[str]  # tensors that a rank computes otherwise when it does so again
    differing: list[str]  # tensors that differ by more than is allowed
    not_proven: list[str]  # tensors that a rank alone cannot repeat, or that its passes write

    @property
    def holds(self) -> bool | None:
        """Tell whether all tensors agree: None where none differs, but some are not proven."""
        return False if self.differing else None if self.not_proven else True

    def record(self) -> dict[str, Any]:
        """Return this result as plain values, for a log."""
        return {**asdict(self), "holds": self.holds}


def judge(
    config: RunConfig,
    names: Sequence[str],
    differences: Sequence[float],
    noises: Sequence[float],
    written: Collection[str] = (),
) -> dict[str, Any]:
    """Judge each tensor by itself; returns the fields of a StepParity that follow.

    `differences` are the exchanged gradients' from the mean, `noises` a rank's own from themselves,
    both relative and [tensors]; the passes wrote the tensors `written` in place.
    """
    most = limit(config)
    random = any(not noise <= most for noise in noises)  # then no noise is known from two passes
    rows = []
    for name, difference, noise in zip(names, differences, noises, strict=True):
        allowed = tolerance(config)
        if noise:
            allowed = min(max(rounding(config), _OWN_NOISE * noise), most)
        uncertain = random and noise > 0 and difference > allowed
        open_question = uncertain or not noise <= most or name in written
        rows.append((name, difference, noise, allowed, open_question))
    differing = [row for row in rows if not row[1] <= row[3] and not row[4]]
    not_proven = [row for row in rows if row[4]]
    candidates = differing or not_proven or rows
    name, difference, noise, allowed, _ = max(candidates, key=lambda row: row[1])
    return {
        "relative_difference": difference,
        "tensor": name if difference else "",
        "allowed": allowed,
        "own_noise": noise,
        "not_deterministic": [row[0] for row in rows if row[2]],
        "differing": [row[0] for row in differing],
        "not_proven": [row[0] for row in not_proven],
    }


def not_proven(steps: Sequence[Mapping[str, Any]]) -> str:
    """Say which tensors of the steps of a log's `parity` could not be compared."""
    names = list(dict.fromkeys(name for step in steps for name in step["not_proven"]))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"parity is not proven of {names[0]}{more}: a rank cannot repeat its own gradients, or its "
        "forward pass writes the parameter, so nothing tells whether the exchange gave the mean"
    )


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
        classes: int | None = None,
    ) -> None:
        self._config, self._backend, self._network = config, backend, network
        self._steps, self._due = steps, False
        self._stand_ins, self._classes = False, classes
        parameters = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in parameters]
        self._parameters = [p for _, p in parameters]
        generator = torch.Generator().manual_seed(config.seed)
        self._places = [_places(p.numel(), sampled, generator) for p in self._parameters]
        self.results: list[StepParity] = []

    @property
    def holds(self) -> bool | None:
        """Tell whether every step that was to be checked was, and agrees; None: not proven."""
        if len(self.results) != len(self._steps) or any(s.holds is False for s in self.results):
            return False
        return None if any(s.holds is None for s in self.results) else True

    def record(self) -> list[dict[str, Any]]:
        """Return the results of all checked steps as plain values, for a log."""
        return [result.record() for result in self.results]

    def step_begin(self, step: int) -> None:
        self._step, self._due = step, step in self._steps

    def session_ready(self, session: Session) -> None:
        self._session = session

    def batch_ready(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        if self._due:
            if self._session.broadcasts_buffers:
                self._session.sync_buffers()  # as its forward pass is about to do
            self._batch, self._before = (images, labels), PassState(self._network)
            self._local = self._compute()

    def gradients_ready(self) -> None:
        if self._due:
            self._compare()
            del self._batch, self._before, self._local

    def _compute(self) -> Gradients:
        """Compute this rank's own gradients from where the step began; leave no other trace."""
        now = PassState(self._network)
        self._before.restore()
        try:
            gradients = self._own()
        except RecomputedError:
            self._stand_ins = True
            self._before.restore()
            gradients = self._own()
        now.restore()
        return self._sample(gradients)

    def _own(self) -> Gradients:
        options = self._stand_ins, self._classes
        return own_gradients(self._network, self._config, *self._batch, *options)

    def _sample(self, gradients: Gradients) -> Gradients:
        return [
            None if g is None else _elements(g, at)
            for g, at in zip(gradients, self._places, strict=True)
        ]

    def _compare(self) -> None:
        exchanged = self._sample([p.grad for p in self._parameters])
        keeps_own = self._config.ranks_part  # then every rank must keep its own
        expected = self._local if keeps_own else mean(self._backend.gather(self._local))
        differences = self._over_ranks(relative(exchanged, expected))
        # a gradient that cancels to nothing, as of a bias before BatchNorm, is rounding alone
        rest = limit(self._config) * largest(expected)
        of_noisy = self._over_ranks(relative(exchanged, expected, rest))
        wrote = {*chain(*self._backend.gather(self._before.written()))}
        # then no exchange can be told from another; asked of all ranks, which must go on alike
        if not any(self._backend.gather(largest(expected))):
            wrote |= {*self.names}
        noises = [0.0] * len(differences)
        judged = judge(self._config, self.names, differences, noises, wrote)
        # what differs is the same on every rank; two passes may agree by chance
        for _ in range(_PASSES if any(differences) else 0):
            again = self._over_ranks(relative(self._compute(), self._local, rest))
            noises = [*map(max, noises, again)]
            each = zip(of_noisy, noises, differences, strict=True)
            seen = [noisy if noise else strict for noisy, noise, strict in each]
            judged = judge(self._config, self.names, seen, noises, wrote)
            if not judged["differing"]:
                break
        elements = sum(map(len, self._places))
        self.results.append(StepParity(step=self._step, elements=elements, **judged))

    def _over_ranks(self, values: list[float]) -> list[float]:
        """Gather [tensors] of every rank; return the largest of each."""
        return [max(by_rank) for by_rank in zip(*self._backend.gather(values), strict=True)]


def _elements(gradient: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Take the elements `at` of a gradient, as real numbers on the CPU."""
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    taken = dense.reshape(-1)[at.to(dense.device)].cpu()
    return torch.view_as_real(taken).reshape(-1) if taken.is_complex() else taken


def _places(elements: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """Choose which elements of a tensor are compared: all, or `most` that are drawn."""
    if elements <= most:
        return torch.arange(elements)
    return torch.randint(elements, (most,), generator=generator)
