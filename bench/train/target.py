"""Trainings to a target: new weights, epoch after epoch, each judged on samples held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from bench import data, models
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.data import Images
from bench.launch.world import Launch
from bench.lifecycle.ending import Pulse
from bench.record import RunLog
from bench.train import numbers
from bench.train.checks import digest
from bench.train.device import Device, time_steps
from bench.train.loop import Input, Loop


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
    """Derive a training's seed from a run's `seed`; a study's runs share one only by chance."""
    return int(np.random.SeedSequence([seed, training]).generate_state(1, np.uint64)[0] >> 2)


def train(course: Course, log: RunLog, pulse: Pulse) -> bool:
    """Run all trainings, with one event an epoch; needs every rank's call.

    The clock runs while an epoch's steps do, and not while it is judged. True if all ranks had the
    same parameters after every epoch.
    """
    trainings = range(course.config.trainings)
    equal = [equal for index in trainings for equal in _training(course, index, log, pulse)]
    return all(equal)


def _training(course: Course, index: int, log: RunLog, pulse: Pulse) -> Iterator[bool]:
    """Train from new weights to the target, or to the last epoch; yield after each epoch whether
    all ranks had one model.
    """
    name = f"training {index + 1} of {course.config.trainings}"
    pulse.enter(name)
    seed = training_seed(course.config.seed, index)
    config = course.config.model_copy(update={"seed": seed})
    backend, device, steps = course.backend, course.place.torch_device, course.steps_per_epoch
    network = models.build_model(config, course.trained.classes)
    models.prepare(network, config, course.trained)
    network = network.to(device)
    batches = data.batches(config, course.launch.rank, course.trained)
    # data-loading processes load torch before they give the first batch: not on this clock
    samples = Input(config, chain([next(batches)], batches), device)
    assert config.epochs is not None
    loop = Loop(config, backend, network, samples, steps=config.epochs * steps)
    pulse.enter(name, lambda: (len(samples.wait_seconds), loop.steps))
    watch, total = course.place.stopwatch(), course.judged.samples
    assert total is not None
    for epoch in range(config.epochs):
        backend.barrier()
        seconds = time_steps(loop.step, steps, watch).seconds
        loss = loop.losses[epoch * steps : (epoch + 1) * steps].mean().item()
        by_rank = {}
        if not config.averages:  # what each rank's own parameters have right
            right = count_correct(course, network, pulse.tick, 0, 1)
            by_rank = {"own_correct": backend.gather(right)}
        loop.session.sync_buffers()
        of_rank = count_correct(course, network, pulse.tick, course.launch.rank, config.world_size)
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
    course: Course, network: torch.nn.Module, counted: Callable[[], object], rank: int, ranks: int
) -> int:
    """Count what `network` has right of the held-out samples that `rank` of `ranks` judges.

    It leaves the network in the mode of evaluation. `counted` is called for each batch.
    """
    config, judged = course.config, course.judged
    # no more at once than a step holds, which fits into memory
    size, device = config.samples_per_microbatch, course.place.torch_device
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
