"""The loops ours is held against: one as a tutorial writes it, and Horovod's own benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from bench import data
from bench.config import RunConfig
from bench.config.derived import MOMENTUM
from bench.models import build_model, import_torchvision
from bench.train.precision import memory_format

Step = Callable[[], None]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]
CLASSES = 10


def bare_batches(config: RunConfig, rank: int) -> Batches:
    """The samples of the study's own loop, as a person would index them by hand.

    With preprocessing=resident its one batch, on the device.
    """
    if config.preprocessing == "resident":
        first, classes = next(data.batches(config, rank, data.load_images(config)))
        first = first.to(config.device, memory_format=memory_format(config))
        yield from repeat((first, classes.to(config.device)))
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
    """A step of plain torch, with the framework wrapped by hand as its tutorial does; its model."""
    torch.manual_seed(config.seed)
    network = model = _network(config)
    optimizer: Any = _sgd(model, config)
    if config.backend == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif config.backend == "horovod":
        import horovod.torch as hvd

        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    model.train()
    return bare_step(model, optimizer, bare_batches(config, rank), config), network


def bare_step(model: Any, optimizer: Any, batches: Batches, config: RunConfig) -> Step:
    """One step as a tutorial writes it, on whatever wrapped model and optimiser."""
    rates = map(config.learning_rate, range(config.steps))
    mixed = config.precision == "bf16-mixed"
    fixed = config.lr_warmup_steps == 0 and config.lr_decay == "none"

    def step() -> None:
        images, labels = next(batches)
        if not fixed:
            for group in optimizer.param_groups:
                group["lr"] = next(rates)
        optimizer.zero_grad()
        with torch.autocast(config.device, torch.bfloat16, enabled=mixed):
            loss = cross_entropy(model(images), labels, label_smoothing=config.label_smoothing)
        loss.backward()
        optimizer.step()

    return step


def _network(config: RunConfig) -> torch.nn.Module:
    """torchvision's own where it has one: ours must build the same."""
    classes = data.load_images(config).classes
    if config.model == "resnet50":
        network: Any = import_torchvision().models.resnet50(num_classes=classes)
        network = network.to(memory_format=memory_format(config))
    else:
        network = build_model(config, classes)
    on_device: torch.nn.Module = network.to(config.device)
    return on_device


def recipe_loop(config: RunConfig) -> Step:
    """Horovod's published synthetic benchmark, at our sizes, threads and optimiser settings.

    What is left of the recipe: one fixed batch of random images, and its order of wrapping,
    broadcasting and stepping.
    """
    import horovod.torch as hvd

    model = import_torchvision().models.resnet50(num_classes=CLASSES)
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
