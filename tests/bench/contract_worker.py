"""One rank of the contract test: trains small models through a backend, or through no backend at all, and saves the outcome.

    mpirun -n 2 python -m tests.bench.contract_worker OUT.pt --backend ddp --world-size 2 --batch-per-rank 4
    python -m tests.bench.contract_worker OUT.pt --batch-per-rank 4 --shards 2      the specification, in one process

The specification is plain torch: every shard's gradient in turn, their mean, one SGD step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from bench import launch as launching
from bench.config import RunConfig, parse_argv
from bench.resources import environment

STEPS = 20
MODELS = ("tests.bench.tiny:plain", "tests.bench.tiny:normalised")
PRECISIONS = ("float32", "float64")


def cases(config: RunConfig) -> list[RunConfig]:
    """The same run for every model and precision; a rising learning rate shows that schedules reach the optimiser."""
    variants = [{"model": m, "precision": p} for m in MODELS for p in PRECISIONS]
    return [config.model_copy(update={**v, "base_lr": 1.0, "lr_warmup_steps": 8}) for v in variants]


def shard_of(config: RunConfig, rank: int, world_size: int) -> Any:
    """Batches of one rank of `world_size`, whatever the backend of `config`."""
    from bench.data import batches, load_images

    whole = RunConfig(
        backend="ddp", world_size=world_size, **config.model_dump(include={"batch_per_rank", "dataset", "seed", "precision"})
    )
    return batches(whole, rank, load_images(whole))


def train(config: RunConfig, backend: Any, rank: int) -> dict[str, Any]:
    """Twenty steps of the study's own loop. Every rank starts from weights of its own: rank 0's must win."""
    import torch

    from bench.model import build_model
    from bench.train import Loop, digest

    network = build_model(config.model_copy(update={"seed": config.seed + rank}), 10)
    loop = Loop(config, backend, network, shard_of(config, rank, config.world_size))
    gradients: list[torch.Tensor] = []
    finish = backend.finish_backward

    def finish_and_note() -> None:
        finish()
        if not gradients:
            gradients.extend(p.grad.clone() for p in network.parameters() if p.grad is not None)

    backend.finish_backward = finish_and_note
    for _ in range(STEPS):
        loop.step()
    backend.finish_backward = finish
    return {
        "gradients": gradients,
        "digests": backend.gather(digest(network)),
        "parameters": [p.detach().clone() for p in network.parameters()],
        "losses": torch.stack(loop.losses),
    }


def specification(config: RunConfig, shards: int, order: list[int]) -> dict[str, Any]:
    """The same twenty steps in plain torch; `order` is the order in which the shards' gradients are summed."""
    import torch
    from torch.nn.functional import cross_entropy

    from bench.model import build_model
    from bench.train import digest

    network = build_model(config, 10)
    sgd = torch.optim.SGD(network.parameters(), lr=0.0, momentum=config.momentum, weight_decay=config.weight_decay)
    data = [shard_of(config, rank, shards) for rank in range(shards)]
    first: list[torch.Tensor] = []
    for step in range(STEPS):
        sgd.param_groups[0]["lr"] = config.base_lr * config.samples_per_rank * shards / 256 * min(1.0, (step + 1) / 8)
        batches = [next(d) for d in data]
        sums: list[torch.Tensor] = []
        for rank in order:
            images, labels = batches[rank]
            loss = cross_entropy(network(images), labels)
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            sums = [g + s for g, s in zip(gradients, sums, strict=True)] if sums else list(gradients)
        for parameter, total in zip(network.parameters(), sums, strict=True):
            parameter.grad = total / shards
        first = first or [p.grad.clone() for p in network.parameters() if p.grad is not None]
        sgd.step()
    return {
        "gradients": first,
        "digests": [digest(network)],
        "parameters": [p.detach().clone() for p in network.parameters()],
    }


def joined(config: RunConfig, shards: int) -> list[Any]:
    """Gradient of the first step on the joined batch of all shards."""
    import torch
    from torch.nn.functional import cross_entropy

    from bench.model import build_model

    network = build_model(config, 10)
    parts = [next(shard_of(config, rank, shards)) for rank in range(shards)]
    images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return list(torch.autograd.grad(cross_entropy(network(images), labels), list(network.parameters())))


def verbs(config: RunConfig, backend: Any, rank: int) -> dict[str, Any]:
    """The small verbs of the protocol, with values that tell a sum from a maximum and rank 0 from the rest."""
    import torch

    from bench.model import build_model

    network = build_model(config.model_copy(update={"model": MODELS[1], "seed": 7 + rank}), 10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    wrapped, _ = backend.wrap(network, optimizer)
    state_after_wrap = backend.gather(not optimizer.state)
    start = backend.gather([p.detach().clone() for p in network.parameters()])
    wrapped(torch.ones(2, 3, 8, 8)).sum().backward()
    backend.finish_backward()
    with torch.no_grad():
        for buffer in network.buffers():
            buffer.fill_(rank + 1)
    backend.sync_buffers()
    buffers = backend.gather([b.clone() for b in network.buffers()])
    backend.zero_grad()
    if rank == 0:
        time.sleep(0.5)
    before = time.perf_counter()
    backend.barrier()
    waited = backend.gather(time.perf_counter() - before)
    return {
        "reduced": {op: backend.all_reduce(rank + 1, op) for op in ("sum", "max", "min")},
        "third": backend.all_reduce(1 / 3, "max"),
        "gathered": backend.gather({"rank": rank, "text": "x" * rank}),
        "start": start,
        "no_state_after_wrap": state_after_wrap,
        "buffers": buffers,
        "cleared": backend.gather(all(p.grad is None for p in network.parameters())),
        "waited_s": waited,
    }


def exchange(config: RunConfig, backend: Any, rank: int) -> list[int]:
    """Bytes of each exchange for ResNet-50 after DDP has rebuilt its buckets."""
    from bench.model import build_model
    from bench.train import Loop

    resnet = config.model_copy(update={"model": "resnet50", "batch_per_rank": 2})
    loop = Loop(resnet, backend, build_model(resnet, 1000), shard_of(resnet, rank, config.world_size))
    for _ in range(3):
        loop.step()
    sizes: list[int] = backend.exchange_bytes()
    return sizes


def main() -> None:
    out, argv = Path(sys.argv[1]), sys.argv[2:]
    shards = int(argv.pop(argv.index("--shards") + 1)) if "--shards" in argv else 0
    argv = [word for word in argv if word != "--shards"]
    config, launch = parse_argv([*argv, "--dataset", "digits"]), launching.discover(os.environ)
    os.environ.update(environment(config, launch, 1, os.environ))
    import torch

    from bench import backends

    torch.set_num_threads(1)
    if shards:
        forward, backward = list(range(shards)), list(reversed(range(shards)))
        result: dict[Any, Any] = {
            (c.model, c.precision): {
                **specification(c, shards, forward),
                "other_order": specification(c, shards, backward),
                "joined": joined(c, shards),
            }
            for c in cases(config)
        }
    else:
        backend = backends.load(config, launch)
        result = {(c.model, c.precision): train(c, backend, launch.rank) for c in cases(config)}
        result["verbs"] = verbs(config, backend, launch.rank)
        if config.settings == "matched" and config.world_size == 2:
            result["exchange_bytes"] = exchange(config, backend, launch.rank)
        backend.close()
    if launch.rank == 0:
        torch.save(result, out)


if __name__ == "__main__":
    main()
