"""The loops ours is held against: one as a tutorial writes it, and Horovod's own benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from bench.config import RunConfig
from bench.config.fields import MOMENTUM
from bench.vision import import_torchvision

Step = Callable[[], None]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]
CLASSES = 10


def bare_batches(config: RunConfig, rank: int) -> Batches:
    """Yield the samples of the study's own loop, as a person would index them by hand."""
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
    network = model = _network()
    optimizer: Any = _sgd(model, config)
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


def _network() -> torch.nn.Module:
    """Build Torchvision's own ResNet-50: our code must build the same."""
    network: torch.nn.Module = import_torchvision().models.resnet50(num_classes=CLASSES)
    return network


def recipe_loop(config: RunConfig) -> Step:
    """Make Horovod's published synthetic benchmark, at our sizes, threads and optimiser settings.

    What is left of the recipe: one fixed batch of random images, and its order of wrapping,
    broadcasting and stepping.
    """
    import horovod.torch as hvd

    model = _network()
    parameters = model.named_parameters()
    optimizer = hvd.DistributedOptimizer(_sgd(model, config), named_parameters=parameters)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images = torch.randn(config.samples_per_rank, 3, config.image_size, config.image_size)
    target = torch.LongTensor(config.samples_per_rank).random_() % CLASSES

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), target).backward()
        optimizer.step()

    return step


def _sgd(model: torch.nn.Module, config: RunConfig) -> torch.optim.SGD:
    rate, decay = config.learning_rate(0), config.weight_decay
    return torch.optim.SGD(
        model.parameters(), rate, MOMENTUM, weight_decay=decay, nesterov=config.nesterov
    )
