"""Inside a launched rank: our loop and a bare one, as a tutorial writes it, in turns on one model.

One wrapped model, so that where it lies in memory cannot favour a loop. This is precise, and blind
to anything outside the loop.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from bench import backends, data
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.config.fields import MOMENTUM
from bench.data.dataset import import_torchvision
from bench.launch.world import Launch
from bench.models import build_model
from bench.record import RunLog
from bench.rig import write_start
from bench.train import device
from bench.train.checks import digest
from bench.train.device import time_steps
from bench.train.loop import Input, Loop

Step = Callable[[], None]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def measure(config: RunConfig, launch: Launch, log: RunLog) -> None:
    """Measure one launch, which needs all ranks. Exits where the loops do not train alike."""
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    backend = backends.load(config, launch, place)
    write_start(config, launch, log, backend, place, {"steps_per_turn": config.steps_per_window})
    take_turns(config, launch.rank, backend, log)  # wrapped models go before their process group
    backend.close()


def take_turns(config: RunConfig, rank: int, backend: Backend, log: RunLog) -> None:
    """Run each loop once a pair, in one random order on all ranks.

    Before, both train a model of their own, wrapped by our backend and by hand, from the same
    parameters to the same.
    """
    images = data.load_images(config)
    network = build_model(config, images.classes)
    samples = Input(config, data.batches(config, rank, images), torch.device("cpu"))
    loop = Loop(config, backend, network, samples)
    by_hand, network_by_hand = bare_loop(config, rank)
    bare = bare_step(loop.session.model, loop.session.optimizer, bare_batches(config, rank))

    def seconds(step: Step, steps: int) -> float:
        """Time a turn on the slowest rank."""
        backend.barrier()
        window = time_steps(step, steps, device.Cpu().stopwatch())
        return backend.reduce_scalar(window.seconds, "max")

    for step in (loop.step, by_hand):
        seconds(step, config.warmup_steps)
    if backend.reduce_scalar(float(digest(network) != digest(network_by_hand)), "max"):
        sys.exit("error: the loops train to different parameters")
    seconds(bare, config.warmup_steps)  # ours has warmed up on this model, and it has not
    steps: dict[str, Step] = {"ours": loop.step, "bare": bare}
    shuffle = random.Random(config.seed)
    for _ in range(config.windows):
        order = shuffle.sample(sorted(steps), len(steps))
        pair = {name: seconds(steps[name], config.steps_per_window) for name in order}
        log.write("pair", seconds=pair)


def bare_batches(config: RunConfig, rank: int) -> Batches:
    """Yield the samples of the study's loop, as a person would index them by hand."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy((pixels - pixels.mean()) / pixels.std()).float().reshape(-1, 1, 8, 8)
    images = images.repeat_interleave(4, 2).repeat_interleave(4, 3).repeat(1, 3, 1, 1)
    targets = torch.from_numpy(labels)
    whole, share = config.samples_per_step, config.samples_per_rank
    for epoch in range(10**9):
        shuffle = np.random.default_rng([config.seed, epoch])
        order = torch.from_numpy(shuffle.permutation(len(targets)))
        for start in range(0, len(targets) - whole + 1, whole):
            chosen = order[start + rank * share : start + (rank + 1) * share]
            yield images[chosen], targets[chosen]


def bare_loop(config: RunConfig, rank: int) -> tuple[Step, torch.nn.Module]:
    """Make a plain torch step, its framework wrapped by hand as in a tutorial, and its model."""
    torch.manual_seed(config.seed)
    network = model = import_torchvision().models.resnet50(num_classes=10)
    rate, decay = config.learning_rate(0), config.weight_decay
    optimizer: Any = torch.optim.SGD(
        model.parameters(), rate, MOMENTUM, weight_decay=decay, nesterov=config.nesterov
    )
    if config.backend == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif config.backend == "horovod":
        import horovod.torch as hvd

        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    model.train()
    return bare_step(model, optimizer, bare_batches(config, rank)), network


def bare_step(model: Any, optimizer: Any, batches: Batches) -> Step:
    """Make one step as a tutorial writes it, on whatever wrapped model and optimiser."""

    def step() -> None:
        images, labels = next(batches)
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step
