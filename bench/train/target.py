"""Trainings to a target accuracy, each from new weights. Held-out samples judge every epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from bench import data, models
from bench.lifecycle.ending import Pulse
from bench.record import RunLog
from bench.train import numbers
from bench.train.checks import digest
from bench.train.device import time_steps
from bench.train.loop import Input, Loop

if TYPE_CHECKING:
    from bench.rig import Rig


def training_seed(seed: int, training: int) -> int:
    """Derive a training's seed, below 2**62, from a run's `seed` and the training's index."""
    return int(np.random.SeedSequence([seed, training]).generate_state(1, np.uint64)[0] >> 2)


def train(rig: Rig, log: RunLog, pulse: Pulse) -> bool:
    """Run all trainings and log every epoch; all ranks must call this.

    Only an epoch's steps are timed, not its evaluation. Return whether all ranks had the same
    parameters after every epoch.
    """
    trainings = range(rig.config.trainings)
    equal = [equal for index in trainings for equal in _training(rig, index, log, pulse)]
    return all(equal)


def _training(rig: Rig, index: int, log: RunLog, pulse: Pulse) -> Iterator[bool]:
    """Train to the target or last epoch; yield after each epoch whether ranks' weights agree."""
    name = f"training {index + 1} of {rig.config.trainings}"
    pulse.enter(name)
    seed = training_seed(rig.config.seed, index)
    config = rig.config.model_copy(update={"seed": seed})
    backend, device, rank = rig.backend, rig.place.torch_device, rig.launch.rank
    trained, judged = rig.workload.images, rig.workload.held_out
    assert trained.samples is not None, "the rules refuse endless sets"
    assert judged is not None
    steps = trained.samples // config.samples_per_step  # the rest of an epoch is left out
    network = models.build_model(config, trained.classes)
    models.prepare(network, config, trained)
    network = network.to(device)
    batches = data.batches(config, rank, trained)
    # data-loading processes load torch before they give the first batch: not on this clock
    samples = Input(config, chain([next(batches)], batches), device)
    assert config.epochs is not None
    loop = Loop(config, backend, network, samples, steps=config.epochs * steps)
    pulse.enter(name, lambda: (len(samples.wait_seconds), loop.steps))
    watch, total = rig.place.stopwatch(), judged.samples
    assert total is not None
    for epoch in range(config.epochs):
        backend.barrier()
        seconds = time_steps(loop.step, steps, watch).seconds
        loss = loop.losses[epoch * steps : (epoch + 1) * steps].mean().item()
        by_rank = {}
        if not config.averages:  # what each rank's own parameters have right
            right = count_correct(rig, network, pulse.tick, 0, 1)
            by_rank = {"own_correct": backend.gather(right)}
        loop.session.sync_buffers()
        of_rank = count_correct(rig, network, pulse.tick, rank, config.world_size)
        correct = int(backend.reduce_scalar(of_rank, "sum"))
        loop.session.model.train()
        equal = len(set(backend.gather(digest(network)))) == 1
        log.write(
            "epoch",
            training=index,
            index=epoch,
            steps=steps,
            seconds=backend.reduce_scalar(seconds, "max"),
            loss=backend.reduce_scalar(loss, "sum") / config.world_size,
            correct=correct,
            held_out=total,
            parameters_equal=equal,
            **by_rank,
        )
        pulse.epoch(index, epoch, correct / total)
        yield equal
        if config.reaches(correct, total):
            break


def count_correct(
    rig: Rig, network: torch.nn.Module, counted: Callable[[], object], rank: int, ranks: int
) -> int:
    """Count correct answers of `network` on this rank's part of the held-out samples.

    The part has the indices rank, rank + ranks and so on. The network is left in evaluation mode.
    `counted` is called after each batch.
    """
    config, judged = rig.config, rig.workload.held_out
    assert judged is not None
    # no more at once than a step holds, which fits into memory
    size, device = config.samples_per_microbatch, rig.place.torch_device
    dtype, layout = numbers.parameter_dtype(config), numbers.memory_format(config)
    correct = 0
    network.eval()
    with torch.no_grad(), numbers.autocast(config):
        indices = range(rank, judged.samples or 0, ranks)
        for start in range(0, len(indices), size):
            images, labels = judged.__getitems__(list(indices[start : start + size]))
            output = network(images.to(device, dtype, memory_format=layout))
            correct += int((output.argmax(1).cpu() == labels).sum())
            counted()
    return correct
