"""One rank of the trap tests: Horovod used as its documentation shows, then through our backend;
prints what happened.

    mpirun -n 2 python -m tests.bench.trap_worker OUT.json

Every function returns what the test compares: first without the cure, then with it. Tensors are
named after the trap, so that a half-finished exchange of one cannot meet that of another.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from bench import backends
from bench.config import RunConfig, UsageError
from bench.launch import world as launch
from bench.launch.resources import environment
from bench.train import device
from bench.train.checks import digest
from bench.train.loop import Input, Loop
from tests.bench.tiny import normalised

MIB = 2**20


class World:
    """Both ways to Horovod in one process group: `hvd` itself, and our backend with any config."""

    def __init__(self) -> None:
        place = launch.discover(os.environ)
        self.rank = place.rank
        self.config = RunConfig(backend="horovod", world_size=2, batch_per_rank=4, dataset="digits")
        os.environ.update(environment(self.config, place, 1, os.environ))
        torch.set_num_threads(1)
        backend: Any = backends.load(self.config, place, device.choose(self.config, place))
        self.backend, self.hvd = backend, backend._hvd

    def raw(self, model: nn.Module, trap: str, **options: Any) -> Any:
        """Wrap the model's optimiser in Horovod's, as Horovod's documentation shows."""
        names = [(f"{trap}.{name}", p) for name, p in model.named_parameters()]
        return self.hvd.DistributedOptimizer(self.sgd(model), named_parameters=names, **options)

    def cured(self, model: nn.Module, **fields: Any) -> Any:
        """Wrap `model` with our backend, and return its optimiser."""
        config = self.config.model_copy(update=fields)
        self.session = self.backend.wrap(model, self.sgd(model), config)
        return self.session.optimizer

    def sgd(self, model: nn.Module) -> torch.optim.SGD:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)

    def loss(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Compute the loss of a batch of this rank's own."""
        own = torch.Generator().manual_seed(self.rank)
        images = torch.randn(4, 3, 8, 8, generator=own).to(dtype)
        return cross_entropy(model(images), torch.arange(4))

    def equal(self, model: nn.Module) -> bool:
        """Check whether all ranks hold the same parameters."""
        return len(set(self.backend.gather(digest(model)))) == 1


def attempt(call: Callable[[], object]) -> str:
    """Return the error that `call` raises, as 'Type: message', or ''."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fresh(make: Callable[[int], nn.Module] = normalised) -> nn.Module:
    torch.manual_seed(0)
    return make(10)


def train_one_step(world: World, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    world.session.zero_grad()
    world.session.backward(world.loss(model, dtype))
    world.session.synchronize_gradients()
    world.session.step()


def channels_last(world: World) -> dict[str, Any]:
    model = fresh().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    broadcast = attempt(lambda: world.hvd.broadcast_parameters(model.state_dict(), root_rank=0))
    world.raw(model, "channels_last")
    raw = attempt(lambda: world.loss(model).backward())
    other = fresh().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    world.cured(other)
    train_one_step(world, other)
    layouts = {p.grad.stride() == p.stride() for p in other.parameters() if p.grad is not None}
    kept, equal = layouts == {True}, world.equal(other)
    return {"raw": raw, "raw_broadcast": broadcast, "equal": equal, "layout_kept": kept}


def bf16(world: World) -> dict[str, Any]:
    model = fresh().to(torch.bfloat16)
    broadcast = attempt(lambda: world.hvd.broadcast_parameters(model.state_dict(), root_rank=0))
    world.raw(model, "bf16")
    raw = attempt(lambda: world.loss(model, torch.bfloat16).backward())
    other = fresh().to(torch.bfloat16)
    world.cured(other, precision="bf16")
    train_one_step(world, other, torch.bfloat16)
    types = sorted({str(p.grad.dtype) for p in other.parameters() if p.grad is not None})
    return {"raw": raw, "raw_broadcast": broadcast, "equal": world.equal(other), "types": types}


def set_to_none(world: World) -> dict[str, Any]:
    model = fresh()
    raw = attempt(lambda: world.raw(model, "set_to_none").zero_grad(set_to_none=True))
    other = fresh()
    world.cured(other)
    train_one_step(world, other)
    world.session.zero_grad()
    return {"raw": raw, "cleared": all(p.grad is None for p in other.parameters())}


class _Wide(nn.Module):
    """54 MiB of gradients, enough for the exchange to be under way when backward returns."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        first, second, last = nn.Linear(192, 3700), nn.Linear(3700, 3700), nn.Linear(3700, classes)
        self.layers = nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(images)
        return result


def clipping(world: World) -> dict[str, Any]:
    model = fresh(_Wide)
    optimizer = world.raw(model, "clipping")
    world.loss(model).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    raw_equal = world.equal(model)
    other = fresh(_Wide)
    world.cured(other)
    world.session.backward(world.loss(other))
    world.session.synchronize_gradients()
    norm = float(nn.utils.clip_grad_norm_(other.parameters(), 0.01))
    world.session.step()
    norms = world.backend.gather(norm)
    return {"raw_equal": raw_equal, "equal": world.equal(other), "norms": norms}


def lost_defaults(world: World) -> dict[str, Any]:
    raw = world.raw(fresh(), "defaults").defaults
    cured = world.cured(fresh()).defaults
    names = ("lr", "momentum", "weight_decay")
    return {"raw": {n: raw[n] for n in names}, "cured": {n: cured[n] for n in names}}


class _LeavesOut(nn.Module):
    """Has a layer that no step uses, and one that rank 1 alone uses."""

    def __init__(self, classes: int, rank: int | None = None) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(192, classes), nn.Linear(5, 5)
        self.sometimes, self._rank = nn.Linear(192, classes), rank

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1)
        output: torch.Tensor = self.used(flat) + (self.sometimes(flat) if self._rank == 1 else 0.0)
        return output


def unused_parameters(world: World) -> dict[str, Any]:
    def make(classes: int) -> nn.Module:
        return _LeavesOut(classes, world.rank)

    def moved(model: nn.Module) -> dict[str, bool]:
        before = dict(fresh(make).named_parameters())
        weights = {name: p for name, p in model.named_parameters() if name.endswith("weight")}
        return {name: not torch.equal(p, before[name]) for name, p in weights.items()}

    model = fresh(make)
    optimizer = world.raw(model, "unused")
    world.loss(model).backward()
    optimizer.step()
    other = fresh(make)
    world.cured(other, unused_parameters=True)
    train_one_step(world, other)
    return {"raw": moved(model), "cured": moved(other), "equal": world.equal(other)}


def refused_unused(world: World) -> dict[str, Any]:
    """Show that without unused_parameters the loop refuses such a model itself in every backend."""
    batch = (torch.ones(4, 3, 8, 8), torch.arange(4))
    samples = Input(world.config, iter([batch]), torch.device("cpu"))
    loop = Loop(world.config, world.backend, fresh(lambda classes: _LeavesOut(classes)), samples)
    try:
        loop.step()
    except UsageError as error:
        loop.session.synchronize_gradients()  # drain, so that the next trap starts clean
        return {"message": str(error)}
    return {"message": ""}


def step_hooks(world: World) -> dict[str, Any]:
    def count(optimizer: Any, step: Callable[[], None]) -> int:
        calls: list[object] = []
        optimizer.register_step_post_hook(lambda *_: calls.append(1))
        step()
        return len(calls)

    model, other = fresh(), fresh()
    raw = world.raw(model, "hooks")
    world.loss(model).backward()
    raw_calls = count(raw, raw.step)
    cured = world.cured(other)
    return {"raw": raw_calls, "cured": count(cured, lambda: train_one_step(world, other))}


def optimizer_state(world: World) -> dict[str, Any]:
    model, other = fresh(), fresh()
    before = digest(model)
    world.hvd.broadcast_optimizer_state(world.sgd(model), root_rank=0)
    world.cured(other)
    return {"raw_moved": digest(model) != before, "moved": digest(other) != before}


def accumulation(world: World) -> dict[str, Any]:
    model = fresh()
    world.raw(model, "accumulation")
    world.loss(model).backward()
    raw = attempt(lambda: world.loss(model).backward())
    other = fresh()
    world.cured(other, accumulate=2)
    with world.session.no_sync():
        world.session.backward(world.loss(other) / 2)
    world.session.backward(world.loss(other) / 2)
    world.session.synchronize_gradients()
    world.session.step()
    return {"raw": raw, "equal": world.equal(other)}


TRAPS = (
    channels_last,
    bf16,
    set_to_none,
    clipping,
    lost_defaults,
    unused_parameters,
    refused_unused,
    step_hooks,
    optimizer_state,
    accumulation,
)


def main() -> None:
    world = World()
    found = {trap.__name__: trap(world) for trap in TRAPS}
    everywhere = world.backend.gather(found)
    if world.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(everywhere))
    world.backend.close()


if __name__ == "__main__":
    main()
