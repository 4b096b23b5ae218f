"""One rank of the contract test: trains small models through a backend and saves the outcome.

    mpirun -n 2 python -m tests.bench.contract_worker OUT.pt shipped,matched --backend ddp ...

trains with each of these settings in turn. `specified` trains by the specification instead, in one
process of plain torch: every shard's gradient in turn, their mean, one SGD step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.config import RunConfig, parse_argv
from bench.instrument import Observer
from bench.launch import world as launching
from bench.launch.resources import environment

STEPS = 12  # the rate rises over eight of them
DATA = ["--dataset", "digits", "--image-size", "8", "--batch-per-rank", "4"]
MODELS = ("tests.bench.tiny:plain", "tests.bench.tiny:normalised")
VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float64": {"precision": "float64"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "overlap off": {"overlap": "off"},
    "all together": {
        "precision": "bf16",
        "memory_format": "channels_last",
        "accumulate": 2,
        "clip_norm": 0.1,
    },
}
PRECISIONS = ("float32", "float64")


def offered(backend: str, variant: str) -> bool:
    """Check whether a backend has what the variant asks of it."""
    from bench.backends.catalogue import CATALOGUE

    facts = CATALOGUE.get(backend)
    return facts is None or not facts.refused.keys() & VARIANTS[variant].items()


def cases(config: RunConfig) -> dict[tuple[str, str], RunConfig]:
    """Make the same run for every model and variant; a rising rate shows that schedules arrive."""
    common = {"base_lr": 1.0, "lr_warmup_steps": 8}
    return {
        (model, name): config.model_copy(update={"model": model, **common, **variant})
        for model in MODELS
        for name, variant in VARIANTS.items()
    }


def shard_of(config: RunConfig, rank: int, world_size: int) -> Any:
    """Make the batches of one rank of `world_size`, whatever the backend of `config`."""
    from bench.data import batches, load_images

    shared = {"batch_per_rank", "dataset", "image_size", "seed", "precision"}
    same = config.model_dump(include=shared)
    whole = RunConfig(backend="ddp", world_size=world_size, **same)
    return batches(whole, rank, load_images(whole))


def make_loop(
    config: RunConfig, backend: Any, network: Any, rank: int, observer: Any = None
) -> Any:
    """Make the study's own loop on this rank's shard."""
    import torch

    from bench.train.input import Input
    from bench.train.loop import Loop

    samples = Input(config, shard_of(config, rank, config.world_size), torch.device("cpu"))
    return Loop(config, backend, network, samples, observer)


class FirstGradients(Observer):
    """Keeps the first step's gradients as they are after the exchange."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.found: list[Any] = []

    def gradients_ready(self) -> None:
        if not self.found:
            gradients = [p.grad for p in self._network.parameters()]
            self.found = [g.clone() for g in gradients if g is not None]


def train(config: RunConfig, backend: Any, rank: int) -> dict[str, Any]:
    """Train steps in the study's own loop, each rank from its own weights: rank 0's must win."""
    from bench.models import build_model
    from bench.train.checks import digest

    network = build_model(config.model_copy(update={"seed": config.seed + rank}), 10)
    first = FirstGradients(network)
    loop = make_loop(config, backend, network, rank, first)
    for _ in range(STEPS):
        loop.step()
    return {
        "gradients": first.found,
        "digests": backend.gather(digest(network)),
        "parameters": [p.detach().clone() for p in network.parameters()],
        "losses": loop.losses[:STEPS],
        "exchange_bytes": loop.session.exchange_bytes(),
    }


def alone(config: RunConfig, backend: Any, rank: int) -> dict[str, Any]:
    """Train the same steps without exchange, and by this rank's shard in one plain process."""
    from bench.backends.protocol import Backend
    from bench.models import build_model
    from bench.train.checks import digest

    own = config.model_copy(update={"model": MODELS[1], "exchange": "off"})
    plain = make_loop(own, Backend(), network := build_model(own, 10), rank)
    for _ in range(STEPS):
        plain.step()
    return {**train(own, backend, rank), "plain": backend.gather(digest(network))}


def specification(config: RunConfig, shards: int, order: list[int]) -> dict[str, Any]:
    """Train the same steps in plain torch; the shards' gradients are summed in `order`."""
    import torch

    from bench.config.fields import MOMENTUM
    from bench.instrument.parity import mean, own_gradients
    from bench.models import build_model
    from bench.train.checks import digest
    from bench.train.precision import parameter_dtype

    network = build_model(config, 10)
    last = config.memory_format == "channels_last"
    layout = torch.channels_last if last else torch.contiguous_format
    own: dict[str, Any] = {"momentum": MOMENTUM, "weight_decay": config.weight_decay}
    sgd = torch.optim.SGD(network.parameters(), lr=0.0, **own)
    rate = config.base_lr * config.samples_per_rank * shards / 256
    data = [shard_of(config, rank, shards) for rank in range(shards)]
    first: list[torch.Tensor] = []
    for step in range(STEPS):
        sgd.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 8)
        batches = [next(d) for d in data]
        found = []
        for rank in order:
            images, labels = batches[rank]
            images = images.to(parameter_dtype(config), memory_format=layout)
            found.append(own_gradients(network, config, images, labels))
        for parameter, gradient in zip(network.parameters(), mean(found), strict=True):
            parameter.grad = gradient
        first = first or [p.grad.clone() for p in network.parameters() if p.grad is not None]
        if config.clip_norm:
            torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
        sgd.step()
    return {
        "gradients": first,
        "digests": [digest(network)],
        "parameters": [p.detach().clone() for p in network.parameters()],
    }


def joined(config: RunConfig, shards: int) -> list[Any]:
    """Compute the gradient of the first step on the joined batch of all shards."""
    import torch
    from torch.nn.functional import cross_entropy

    from bench.models import build_model

    network = build_model(config, 10)
    parts = [next(shard_of(config, rank, shards)) for rank in range(shards)]
    images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    loss = cross_entropy(network(images), labels)
    return list(torch.autograd.grad(loss, list(network.parameters())))


def verbs(config: RunConfig, backend: Any, rank: int) -> dict[str, Any]:
    """Call the small verbs with values that tell a sum from a maximum and rank 0 from the rest."""
    import torch

    from bench.models import build_model

    network = build_model(config.model_copy(update={"model": MODELS[1], "seed": 7 + rank}), 10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    session = backend.wrap(network, optimizer, config)
    state_after_wrap = backend.gather(not optimizer.state)
    start = backend.gather([p.detach().clone() for p in network.parameters()])
    session.model(torch.ones(2, 3, 8, 8)).sum().backward()
    session.synchronize_gradients()
    with torch.no_grad():
        for buffer in network.buffers():
            buffer.fill_(rank + 1)
    session.sync_buffers()
    buffers = backend.gather([b.clone() for b in network.buffers()])
    session.zero_grad()
    if rank == 0:
        time.sleep(0.5)
    came = time.monotonic()  # one clock for all processes of this machine
    backend.barrier()
    barrier = backend.gather((came, time.monotonic()))
    return {
        "reduced": {op: backend.reduce_scalar(rank + 1, op) for op in ("sum", "max", "min")},
        "third": backend.reduce_scalar(1 / 3, "max"),
        "gathered": backend.gather({"rank": rank, "text": "x" * rank}),
        "start": start,
        "no_state_after_wrap": state_after_wrap,
        "buffers": buffers,
        "cleared": backend.gather(all(p.grad is None for p in network.parameters())),
        "barrier": barrier,
    }


def kept(config: RunConfig, backend: Any) -> bool:
    """Check whether rank 0's tensors of many types and layouts come out of `wrap` as they were."""
    import torch

    from bench.models import build_model
    from tests.bench.test_model import tensors

    model = "tests.bench.test_model:frozen_kinds"
    network = build_model(config.model_copy(update={"model": model}), 10)
    before = tensors(network)
    trained = [p for p in network.parameters() if p.requires_grad]
    backend.wrap(network, torch.optim.SGD(trained, lr=0.1), config)
    return before == tensors(network)


def exchange(config: RunConfig, backend: Any, rank: int) -> list[int]:
    """Count the bytes of each exchange for ResNet-50 after DDP has rebuilt its buckets."""
    from bench.models import build_model

    update = {"model": "resnet50", "image_size": 32, "batch_per_rank": 2}
    resnet = config.model_copy(update=update)
    loop = make_loop(resnet, backend, build_model(resnet, 1000), rank)
    for _ in range(3):
        loop.step()
    sizes: list[int] = loop.session.exchange_bytes()
    return sizes


def specified(shards: int) -> dict[tuple[str, str], Any]:
    """Compute what the ranks must come to, for every model and variant."""
    import torch

    torch.set_num_threads(1)
    forward, backward = list(range(shards)), list(reversed(range(shards)))
    return {
        (model, name): {
            **specification(c, shards, forward),
            "other_order": specification(c, shards, backward),
            "joined": joined(c, shards) if name in PRECISIONS else [],
        }
        for (model, name), c in cases(parse_argv(DATA)).items()
    }


def outcome(config: RunConfig, backend: Any, rank: int) -> dict[Any, Any]:
    """Gather all that the test asks of one backend with one kind of settings."""
    result: dict[Any, Any] = {
        key: train(case, backend, rank)
        for key, case in cases(config).items()
        if offered(config.backend, key[1])
    }
    result["exchange off"] = alone(config, backend, rank)
    result["verbs"] = {**verbs(config, backend, rank), "kept": kept(config, backend)}
    if (config.transport, config.settings, config.world_size) == ("mpi", "matched", 2):
        result["exchange_bytes"] = exchange(config, backend, rank)
    return result


def main() -> None:
    out, settings, argv = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    config = parse_argv([*argv, *DATA, "--settings", settings[0]])
    launch = launching.discover(os.environ)
    os.environ.update(environment(config, launch, 1, os.environ))
    import torch

    from bench import backends
    from bench.train import device

    torch.set_num_threads(1)
    backend = backends.load(config, launch, device.choose(config, launch))
    each = (config.model_copy(update={"settings": name}) for name in settings)
    result = {c.settings: outcome(c, backend, launch.rank) for c in each}
    backend.close()
    if launch.rank == 0:
        torch.save(result, out)


if __name__ == "__main__":
    main()
