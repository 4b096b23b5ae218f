"""Trainings to a target: new weights, epoch after epoch, each judged on samples held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from bench import data, models
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.data import Images
from bench.launch.world import Launch
from bench.lifecycle.pulse import Pulse
from bench.record import RunLog
from bench.train import precision
from bench.train.checks import digest
from bench.train.device import Device
from bench.train.input import Input
from bench.train.loop import Loop
from bench.train.timing import time_steps


@dataclass(frozen=True)
class Course:
    """A run's trainings: all of them on `trained`, none of them on `judged`."""

    config: RunConfig
    launch: Launch
    backend: Backend
    place: Device
    trained: Images
    judged: Images

    @property
    def steps_per_epoch(self) -> int:
        """Steps whose global batches the data set fills; the rest of an epoch is left out."""
        assert self.trained.samples is not None, "the rules refuse endless sets"
        return self.trained.samples // self.config.samples_per_step


def training_seed(seed: int, training: int) -> int:
    """Of one training of a run with `seed`: no two runs of a study share one, but by chance."""
    return int(np.random.SeedSequence([seed, training]).generate_state(1, np.uint64)[0] >> 2)


def train(course: Course, log: RunLog, pulse: Pulse) -> bool:
    """All trainings, one event an epoch; needs every rank's call.

    The clock runs while an epoch's steps do, and not while it is judged. True if all ranks ended
    every training with the same parameters.
    """
    equal = [_train_once(course, index, log, pulse) for index in range(course.config.trainings)]
    return all(equal)


def _train_once(course: Course, training: int, log: RunLog, pulse: Pulse) -> bool:
    seed = training_seed(course.config.seed, training)
    config = course.config.model_copy(update={"seed": seed})
    device, backend = course.place.torch_device, course.backend
    network = models.build_model(config, course.trained.classes)
    models.prepare(network, config, course.trained)
    network = network.to(device)
    samples = Input(config, data.batches(config, course.launch.rank, course.trained), device)
    assert config.epochs is not None
    steps, watch = course.steps_per_epoch, course.place.stopwatch()
    loop = Loop(config, backend, network, samples, steps=config.epochs * steps)
    pulse.enter(
        f"training {training + 1} of {config.trainings}",
        lambda: (len(samples.wait_seconds), loop.steps),
    )
    for epoch in range(config.epochs):
        backend.barrier()
        timed = time_steps(loop.step, steps, watch)
        seconds = backend.reduce_scalar(timed.seconds, "max")
        losses = loop.losses[epoch * steps : (epoch + 1) * steps]
        loss = backend.reduce_scalar(losses.mean().item(), "sum") / config.world_size
        loop.session.sync_buffers()
        correct = count_correct(course, network, pulse.tick)
        loop.session.model.train()
        held_out = course.judged.samples
        assert held_out is not None
        found = {"seconds": seconds, "loss": loss, "correct": correct, "held_out": held_out}
        log.write("epoch", training=training, index=epoch, steps=steps, **found)
        pulse.epoch(training, epoch, correct / held_out)
        if config.reaches(correct, held_out):
            break
    return len(set(backend.gather(digest(network)))) == 1


def count_correct(
    course: Course, network: torch.nn.Module, counted: Callable[[], object] = lambda: None
) -> int:
    """Held-out samples that `network` has right, each judged by one rank; needs every rank's call.

    It leaves the network in the mode of evaluation. `counted` is called for each batch.
    """
    config, launch, judged = course.config, course.launch, course.judged
    assert judged.samples is not None
    mine = range(launch.rank, judged.samples, launch.size)
    # no more at once than a step holds, which fits into memory
    size, device = config.samples_per_microbatch, course.place.torch_device
    dtype, layout = precision.parameter_dtype(config), precision.memory_format(config)
    correct = 0
    network.eval()
    with torch.no_grad(), precision.autocast(config):
        for first in range(0, len(mine), size):
            images, labels = judged.__getitems__(list(mine[first : first + size]))
            output = network(images.to(device, dtype, memory_format=layout))
            correct += int((output.argmax(1).cpu() == labels).sum())
            counted()
    return int(course.backend.reduce_scalar(correct, "sum"))
