"""The torch half of python -m bench timeline: train one process, and note when what is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from bench import data, models
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.instrument import Observer
from bench.launch.world import discover
from bench.train import device
from bench.train.input import Input
from bench.train.loop import Loop
from bench.train.timing import Stopwatch

Traits = dict[str, Any]
_FORWARD, _LOSS, _BACKWARD, _READY, _DONE = "begun", "loss", "backward", "ready", "done"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Seconds of every timed step; a gradient's count from the start of its backward pass."""

    classes: int
    device: Traits
    forward: list[float]
    backward: list[float]
    optimizer: list[float]
    gradients: list[tuple[Traits, list[float]]]


class _Recorder(Observer):
    """Marks on the device's own clock: events in the stream where the device is a GPU."""

    def __init__(self, network: torch.nn.Module, watch: Stopwatch) -> None:
        self._watch, self._points = watch, list[str]()
        self._names = [name for name, p in network.named_parameters() if p.requires_grad]
        self.forward: list[float] = []
        self.backward: list[float] = []
        self.optimizer: list[float] = []
        self.ready: dict[str, list[float]] = {name: [] for name in self._names}
        network.register_forward_pre_hook(lambda *_: self._mark(_FORWARD))
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(
                    lambda _, name=name: self._mark(f"gradient {name}")
                )

    def _mark(self, point: str) -> None:
        self._watch.mark()
        self._points.append(point)

    def forward_done(self) -> None:
        self._mark(_LOSS)

    def backward_done(self) -> None:
        self._mark(_BACKWARD)

    def gradients_ready(self) -> None:
        self._mark(_READY)

    def step_end(self) -> None:
        """End a step: wait for the device once, between two steps, where nothing is timed."""
        self._mark(_DONE)
        self._watch.now()
        at = dict(zip(self._points, accumulate(self._watch.laps(), initial=0.0), strict=True))
        self._points.clear()
        begun = at[_LOSS]
        self.forward.append(begun - at[_FORWARD])
        self.backward.append(at[_BACKWARD] - begun)
        self.optimizer.append(at[_DONE] - at[_READY])
        for name in self._names:
            self.ready[name].append(at[f"gradient {name}"] - begun)


def record(config: RunConfig, steps: int, say: Callable[[str], object]) -> Recorded:
    """Warm up, then time `steps` steps. Raises UsageError where the run itself would."""
    config = config.model_copy(update={"windows": 1, "steps_per_window": steps})
    torch.set_num_threads(config.threads)
    place = device.choose(config, discover(os.environ))
    images = data.load_images(config)
    network = models.build_model(config, images.classes).to(place.torch_device)
    samples = Input(config, data.batches(config, 0, images), place.torch_device)
    recorder = _Recorder(network, place.stopwatch())
    loop = Loop(config, Backend(), network, samples, recorder)
    say(f"{config.model}: {config.warmup_steps} + {steps} steps")
    for _ in range(config.steps):
        loop.step()
    named = {name: _facts(name, p) for name, p in network.named_parameters() if p.requires_grad}
    return Recorded(
        classes=images.classes,
        device=place.describe(),
        forward=recorder.forward[-steps:],
        backward=recorder.backward[-steps:],
        optimizer=recorder.optimizer[-steps:],
        gradients=[(named[name], recorder.ready[name][-steps:]) for name in named],
    )


def parameters(config: RunConfig) -> tuple[list[Traits], int]:
    """List what is trained, in the model's order, and count the classes."""
    classes = data.load_images(config).classes
    network = models.build_model(config, classes)
    return [_facts(name, p) for name, p in network.named_parameters() if p.requires_grad], classes


def _facts(name: str, parameter: torch.nn.Parameter) -> Traits:
    return {"name": name, "shape": tuple(parameter.shape), "bytes": parameter.nbytes}
