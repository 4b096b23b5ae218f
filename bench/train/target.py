"""Trainings to a target: new weights, epoch after epoch, each judged on samples held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

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
    """Derive a training's seed from a run's `seed`; a study's runs share one only by chance."""
    return int(np.random.SeedSequence([seed, training]).generate_state(1, np.uint64)[0] >> 2)


def train(course: Course, log: RunLog, pulse: Pulse) -> bool:
    """Run all trainings, with one event an epoch; needs every rank's call.

    The clock runs while an epoch's steps do, and not while it is judged. True if all ranks had the
    same parameters after every epoch.
    """
    config = course.config
    equal = []
    for index in range(config.trainings):
        pulse.enter(f"training {index + 1} of {config.trainings}")
        equal += _Training(course, index, log, pulse).run()
    return all(equal)


class _Training:
    """One training from new weights."""

    def __init__(self, course: Course, index: int, log: RunLog, pulse: Pulse) -> None:
        self._course, self._index = course, index
        self._log, self._pulse = log, pulse
        seed = training_seed(course.config.seed, index)
        self._config = course.config.model_copy(update={"seed": seed})
        network = models.build_model(self._config, course.trained.classes)
        models.prepare(network, self._config, course.trained)
        self._network = network.to(course.place.torch_device)

    def run(self) -> list[bool]:
        """Train to the target, or to the last epoch; after which all ranks had one model?"""
        course, config, steps = self._course, self._config, self._course.steps_per_epoch
        rank, device = course.launch.rank, course.place.torch_device
        batches = data.batches(config, rank, course.trained)
        # data-loading processes load torch before they give the first batch: not on this clock
        samples = Input(config, chain([next(batches)], batches), device)
        assert config.epochs is not None
        all_steps = config.epochs * steps
        loop = Loop(config, course.backend, self._network, samples, steps=all_steps)
        self._pulse.enter(
            f"training {self._index + 1} of {config.trainings}",
            lambda: (len(samples.wait_seconds), loop.steps),
        )
        watch = course.place.stopwatch()
        equal = []
        for epoch in range(config.epochs):
            course.backend.barrier()
            seconds = time_steps(loop.step, steps, watch).seconds
            event = self._judge(epoch, loop, seconds)
            equal.append(bool(event["parameters_equal"]))
            if config.reaches(event["correct"], event["held_out"]):
                break
        return equal

    def _judge(self, epoch: int, loop: Loop, seconds: float) -> dict[str, Any]:
        """Judge the epoch outside the clock, log it, and return its event."""
        course, backend, steps = self._course, self._course.backend, self._course.steps_per_epoch
        losses = loop.losses[epoch * steps : (epoch + 1) * steps]
        by_rank = None if self._config.averages else backend.gather(self._right_alone())
        loop.session.sync_buffers()
        correct = count_correct(course, self._network, self._pulse.tick)
        loop.session.model.train()
        assert course.judged.samples is not None
        event: dict[str, Any] = {
            "training": self._index,
            "index": epoch,
            "steps": steps,
            "seconds": backend.reduce_scalar(seconds, "max"),
            "loss": backend.reduce_scalar(losses.mean().item(), "sum") / self._config.world_size,
            "correct": correct,
            "held_out": course.judged.samples,
            "parameters_equal": len(set(backend.gather(digest(self._network)))) == 1,
            **({} if by_rank is None else {"own_correct": by_rank}),
        }
        self._log.write("epoch", **event)
        self._pulse.epoch(self._index, epoch, correct / event["held_out"])
        return event

    def _right_alone(self) -> int:
        """Count the held-out samples that this rank's own parameters have right."""
        course = self._course
        assert course.judged.samples is not None
        return _count(course, self._network, range(course.judged.samples), self._pulse.tick)


def count_correct(
    course: Course, network: torch.nn.Module, counted: Callable[[], object] = lambda: None
) -> int:
    """Count held-out samples `network` has right, each judged by one rank; needs every rank's call.

    It leaves the network in the mode of evaluation. `counted` is called for each batch.
    """
    assert course.judged.samples is not None
    indices = range(course.launch.rank, course.judged.samples, course.config.world_size)
    return int(course.backend.reduce_scalar(_count(course, network, indices, counted), "sum"))


def _count(
    course: Course, network: torch.nn.Module, indices: range, counted: Callable[[], object]
) -> int:
    config, judged = course.config, course.judged
    # no more at once than a step holds, which fits into memory
    size, device = config.samples_per_microbatch, course.place.torch_device
    dtype, layout = precision.parameter_dtype(config), precision.memory_format(config)
    correct = 0
    network.eval()
    with torch.no_grad(), precision.autocast(config):
        for start in range(0, len(indices), size):
            images, labels = judged.__getitems__(list(indices[start : start + size]))
            output = network(images.to(device, dtype, memory_format=layout))
            correct += int((output.argmax(1).cpu() == labels).sum())
            counted()
    return correct
