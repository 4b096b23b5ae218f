"""The one training loop: the same statements for every backend, in the order a person would write them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import cross_entropy

from bench.backends import Backend
from bench.config import RunConfig
from bench.data import Batch
from bench.record import RunLog
from bench.timing import Clock, Sync, time_steps

Progress = Callable[[str, int, int, float], None]  # phase, windows done, windows in all, images/s


class Loop:
    """A model in training; `step` is one optimiser update. Counts the samples it was given and keeps every loss."""

    def __init__(self, config: RunConfig, backend: Backend, model: torch.nn.Module, batches: Iterator[Batch]) -> None:
        self._config, self._backend, self._batches = config, backend, batches
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=config.learning_rate(0),
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.nesterov,
        )
        self._model, self._optimizer = backend.wrap(model, optimizer)
        self._model.train()
        self.samples = 0
        self.losses: list[torch.Tensor] = []

    def step(self) -> None:
        images, labels = next(self._batches)
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.learning_rate(len(self.losses))
        self._backend.zero_grad()
        loss = cross_entropy(self._model(images), labels)
        self._backend.backward(loss)
        self._backend.finish_backward()
        self._backend.step()
        self.losses.append(loss.detach())
        self.samples += len(labels)


def measure(loop: Loop, backend: Backend, config: RunConfig, log: RunLog, clock: Clock, sync: Sync, progress: Progress) -> None:
    """Warm up, then time the windows; after each, outside the clock, every rank's seconds go to the log."""
    warmup = time_steps(loop.step, config.warmup_steps, clock, sync)
    _record(backend, log, "warmup", 0, warmup.step_seconds)
    for index in range(config.windows):
        backend.barrier()
        window = time_steps(loop.step, config.steps_per_window, clock, sync)
        seconds = backend.all_reduce(window.seconds, "max")
        _record(backend, log, "window", index, window.step_seconds)
        log.write("window", index=index, steps=config.steps_per_window, seconds=seconds)
        images = config.samples_per_step * config.steps_per_window
        progress("window", index + 1, config.windows, images / seconds)


def _record(backend: Backend, log: RunLog, phase: str, index: int, step_seconds: list[float]) -> None:
    log.write("steps", phase=phase, index=index, seconds=backend.gather(step_seconds))


def checks(loop: Loop, backend: Backend, config: RunConfig, model: torch.nn.Module) -> dict[str, object]:
    """Did the run do what was asked? Samples, losses and parameters of all ranks, compared; needs every rank's call."""
    steps = config.warmup_steps + config.windows * config.steps_per_window
    losses = [float(loss) for loss in loop.losses]
    digests = backend.gather(digest(model))
    sampled = backend.all_reduce(loop.samples, "sum")
    finite = backend.all_reduce(float(all(math.isfinite(loss) for loss in losses)), "min")
    return {
        "checks": {
            "samples_per_step": sampled == steps * config.samples_per_step and len(losses) == steps,
            "loss_finite": finite == 1.0,
            "parameters_equal": len(set(digests)) == 1,
        },
        "samples": int(sampled),
        "first_loss": backend.all_reduce(losses[0], "sum") / config.world_size,
        "last_loss": backend.all_reduce(losses[-1], "sum") / config.world_size,
        "parameters_sha256": digests[0],
    }


def digest(model: torch.nn.Module) -> str:
    """SHA-256 of all parameters, bit for bit, in order of definition."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
