"""Parity: whether the gradients that a step exchanged are the mean of what ranks compute alone.

A rank computes its own gradients for copies of the network's parameters, so no framework's hook
sees them. The ranks gather these gradients as objects, not by the exchange that is checked.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from bench.backends.protocol import Backend, Session
from bench.config import RunConfig
from bench.instrument import Observer
from bench.models import require_scores
from bench.train import numbers

Gradients = list[torch.Tensor | None]  # of the trained parameters, in order of definition

STEP = 2  # of a run: the last of the shortest warm-up; DDP has rebuilt its buckets by then
SAMPLED = 1024  # elements compared of each tensor of a run
# A rank that computes again may round otherwise: kernels of a GPU add in no fixed order. So many
# times its own noise is then allowed, of so many passes, but no more than the limit, beyond which
# nothing is proven.
_OWN_NOISE, _PASSES = 100, 3
# What another order of summation explains of max|difference| / max|gradient|, and the limit.
# bfloat16 has 8 bits. A float32 sum of 10,000 terms in another order may part by its limit where
# they cancel; bfloat16 and TF32 by a few of their last bits.
_TOLERANCES = {
    "float32": (1e-5, 1e-3),
    "float64": (1e-12, 1e-10),
    "tf32": (1e-5, 2.0**-7),
    "bf16-mixed": (1e-5, 2.0**-5),
    "bf16": (2.0**-7, 2.0**-5),
}


def own_gradients(
    network: nn.Module,
    config: RunConfig,
    images: torch.Tensor,
    labels: torch.Tensor,
    classes: int | None = None,
) -> Gradients:
    """Compute the gradients of one rank's batch alone: images [n, 3, size, size] and labels [n].

    Modules and random numbers stay as they were; the user's hooks run. A parameter that the pass
    froze or did not use gets None. With `classes`, raises UsageError for wrong scores or labels.
    """
    copies: dict[int, Any] = {id(module): module for module in network.modules()}
    pairs, trained = list[tuple[torch.Tensor, torch.Tensor]](), list[torch.Tensor]()
    for parameter in network.parameters():
        stand_in = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
        for hook in (parameter._backward_hooks or {}).values():
            stand_in.register_hook(hook)
        copies[id(parameter)] = stand_in
        pairs.append((stand_in, parameter))
        trained += [stand_in] if parameter.requires_grad else []
    states = [(module, vars(module)) for module in network.modules()]
    random = numbers.RandomState()
    try:
        for module, state in states:
            held = {name: _copied(value, copies) for name, value in state.items()}
            object.__setattr__(module, "__dict__", held)
        size = config.samples_per_microbatch
        for part in zip(images.split(size), labels.split(size), strict=True):
            with numbers.autocast(config):
                scores = network(part[0])
                if classes is not None:
                    require_scores(scores, part[1], classes, config)
                smoothing = config.label_smoothing
                loss = cross_entropy(scores, part[1], label_smoothing=smoothing) / config.accumulate
            if _recomputes(loss):  # torch gives no gradients by value then
                loss.backward()
            elif loss.requires_grad:  # else the pass froze all parameters
                _add(loss, pairs)
    finally:
        for module, state in states:
            object.__setattr__(module, "__dict__", state)
        random.restore()
    return [stand_in.grad for stand_in in trained]


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """Copy a module's value deeply; if that fails, return a shallow copy, or the value itself."""
    with suppress(Exception):  # a lock, say, or a tensor that was computed
        return copy.deepcopy(value, copies)
    with suppress(Exception):
        return copy.copy(value)
    return value


def _recomputes(loss: torch.Tensor) -> bool:
    """Check whether torch's reentrant checkpoint is among the operations that made `loss`."""
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            if node.name() == "CheckpointFunctionBackward":
                return True
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
    return False


def _add(loss: torch.Tensor, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Add gradients of `loss` to each stand-in's `grad`; `pairs` are (stand-in, parameter).
    The parameter's own gradient is added too, as the model's code may hold it outside the modules.
    """
    trained = [(pair[0], p) for pair in pairs for p in pair if p.requires_grad]
    gradients = torch.autograd.grad(loss, [p for _, p in trained], allow_unused=True)
    for (stand_in, _), gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            stand_in.grad = gradient if stand_in.grad is None else stand_in.grad + gradient


def mean(shards: Sequence[Gradients]) -> Gradients:
    """Average each gradient over `shards`. None counts as 0, but the mean is None if all are."""
    means: Gradients = []
    for gradients in zip(*shards, strict=True):
        used = [g for g in gradients if g is not None]  # some shards may not have the parameter
        wide = [g.float() if g.dtype == torch.bfloat16 else g for g in used]
        means.append((sum(wide[1:], wide[0]) / len(shards)).to(used[0].dtype) if used else None)
    return means


def relative(gradients: Gradients, expected: Gradients, floor: float = 0.0) -> list[float]:
    """Return max|gradient - expected| / max(max|expected|, floor) of each tensor; 0 where equal.

    A ratio is infinite if the divisor is 0, or if NaN is in one tensor alone. It is also infinite
    if one tensor is None and the other is not zero.
    """
    ratios = []
    for gradient, mean_of_ranks in zip(gradients, expected, strict=True):
        if gradient is None or mean_of_ranks is None:
            lone = gradient if mean_of_ranks is None else mean_of_ranks
            ratios.append(math.inf if lone is not None and lone.any() else 0.0)
            continue
        a, b = gradient.double(), mean_of_ranks.double()
        differs = ((a == b) | (a.isnan() & b.isnan())).logical_not()
        difference = (a - b).abs()[differs].max().item() if differs.any() else 0.0
        scale = max(largest([mean_of_ranks]), floor)
        ratio = difference and (difference / scale if scale else math.inf)
        ratios.append(math.inf if math.isnan(ratio) else ratio)
    return ratios


def largest(gradients: Gradients) -> float:
    """Return the largest finite |element| of all gradients; 0 if there is no such element."""
    filled = [g.double().abs() for g in gradients if g is not None and g.numel()]
    return max((g.nan_to_num(0.0, 0.0).max().item() for g in filled), default=0.0)


def tolerances(config: RunConfig) -> tuple[float, float]:
    """Return two relative differences: what rounding alone explains, and the most to allow."""
    return _TOLERANCES[config.precision]


@dataclass(frozen=True, kw_only=True)
class StepParity:
    """The parity of one checked step. Difference, limit and noise are those of the worst tensor."""

    step: int = 0
    elements: int = 0  # compared on every rank
    relative_difference: float  # largest over ranks
    tensor: str  # '' where nothing differs
    allowed: float  # for this tensor
    own_noise: float  # what two computations of it on one rank differ by
    not_deterministic: list[str]  # tensors that a rank computes otherwise when it does so again
    differing: list[str]  # tensors that differ by more than is allowed
    not_proven: list[str]  # tensors that a rank alone cannot repeat, or that are all zero

    @property
    def holds(self) -> bool | None:
        """Whether all tensors agree; None if no tensor differs, but some are not proven."""
        return False if self.differing else None if self.not_proven else True


def judge(
    config: RunConfig,
    names: Sequence[str],
    differences: Sequence[float],
    noises: Sequence[float],
) -> StepParity:
    """Judge each tensor by its difference from the mean, and by the noise of repeated passes.

    All sequences are [tensors]. If the largest noise exceeds the limit of `tolerances`, every
    tensor whose noise is not 0 goes to `not_proven`.
    """
    rounding, limit = tolerances(config)
    worst_noise = max(noises)
    # adding two and halving are exact in any order
    exact = 0.0 if config.world_size <= 2 else rounding
    rows = []
    for name, difference, noise in zip(names, differences, noises, strict=True):
        allowed = min(max(rounding, _OWN_NOISE * noise), limit) if noise else exact
        proven = not noise or worst_noise <= limit
        rows.append((name, difference, noise, allowed, difference <= allowed if proven else None))
    differing = [row for row in rows if row[4] is False]
    unproven = [row for row in rows if row[4] is None]
    name, difference, noise, allowed, _ = max(differing or unproven or rows, key=lambda row: row[1])
    return StepParity(
        relative_difference=difference,
        tensor=name if difference else "",
        allowed=allowed,
        own_noise=noise,
        not_deterministic=[row[0] for row in rows if row[2]],
        differing=[row[0] for row in differing],
        not_proven=[row[0] for row in unproven],
    )


def not_proven(steps: Sequence[Mapping[str, Any]]) -> str:
    """Return a warning about tensors that are not proven. `steps` is the list `parity` of a log."""
    names = list(dict.fromkeys(name for step in steps for name in step["not_proven"]))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"parity is not proven of {names[0]}{more}: a rank cannot repeat its own gradients, or all "
        "of them are zero, so nothing tells whether the exchange gave the mean"
    )


class Parity(Observer):
    """A check of gradients in `steps`. In each step a rank computes its own gradients three times.
    The largest difference of the last two from the first is the rank's noise.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        network: nn.Module,
        steps: Sequence[int] = (STEP,),
        sampled: int = SAMPLED,
        classes: int | None = None,
    ) -> None:
        self._config, self._backend, self._network = config, backend, network
        self._steps, self._classes, self._due = steps, classes, False
        trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.names, self._parameters = [*trained], [*trained.values()]
        generator = torch.Generator().manual_seed(config.seed)
        self._places = [  # which elements of each tensor are compared: all, or some that are drawn
            torch.randint(p.numel(), (sampled,), generator=generator)
            if p.numel() > sampled
            else torch.arange(p.numel())
            for p in self._parameters
        ]
        self.results: list[StepParity] = []

    @property
    def holds(self) -> bool | None:
        """Whether all `steps` were checked and agree; None if none differs, but one is unproven."""
        if len(self.results) != len(self._steps) or any(s.holds is False for s in self.results):
            return False
        return None if any(s.holds is None for s in self.results) else True

    def record(self) -> list[dict[str, Any]]:
        """Return the results of all checked steps as plain values, for a log."""
        return [{**asdict(result), "holds": result.holds} for result in self.results]

    def session_ready(self, session: Session) -> None:
        self._session = session

    def step_begin(self, step: int) -> None:
        self._step, self._due = step, step in self._steps

    def batch_ready(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        if self._due:
            if self._session.broadcasts_buffers:
                self._session.sync_buffers()  # as its forward pass is about to do
            batch = (images, labels, self._classes)
            self._own, *self._again = (
                self._sample(own_gradients(self._network, self._config, *batch))
                for _ in range(_PASSES)
            )

    def gradients_ready(self) -> None:
        if not self._due:
            return
        gather = self._backend.gather
        exchanged = self._sample([p.grad for p in self._parameters])
        # without an exchange every rank must keep its own
        expected = self._own if self._config.ranks_part else mean(gather(self._own))
        # a gradient that cancels to nothing, as of a bias before BatchNorm, is rounding alone
        rest = tolerances(self._config)[1] * largest(expected)
        again = [relative(gradients, self._own, rest) for gradients in self._again]
        noises = self._over_ranks([max(of_tensor) for of_tensor in zip(*again, strict=True)])
        # a small tensor of a rank that repeats itself is held to its own size
        of_noisy, of_exact = (relative(exchanged, expected, floor) for floor in (rest, 0.0))
        each = zip(noises, of_noisy, of_exact, strict=True)
        differences = self._over_ranks([noisy if noise else exact for noise, noisy, exact in each])
        judged = judge(self._config, self.names, differences, noises)
        if not any(gather(largest(expected))):  # no exchange can be told from another
            judged = replace(judged, differing=[], not_proven=self.names)
        elements = sum(map(len, self._places))
        self.results.append(replace(judged, step=self._step, elements=elements))

    def _sample(self, gradients: Gradients) -> Gradients:
        pairs = zip(gradients, self._places, strict=True)
        return [None if gradient is None else _elements(gradient, at) for gradient, at in pairs]

    def _over_ranks(self, values: list[float]) -> list[float]:
        """Return the largest value of each tensor over all ranks, shape [tensors]."""
        return [max(by_rank) for by_rank in zip(*self._backend.gather(values), strict=True)]


def _elements(gradient: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Take the elements of a gradient at flat indices `at`, as real numbers on the CPU."""
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    taken = dense.reshape(-1)[at.to(dense.device)].cpu()
    return torch.view_as_real(taken).reshape(-1) if taken.is_complex() else taken
