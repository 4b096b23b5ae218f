"""The one training loop: the same statements for every backend, in the order a person would write
them.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import torch
from torch.nn.functional import cross_entropy

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.data import Batch
from bench.record import RunLog
from bench.train import precision
from bench.train.timing import Stopwatch, time_steps

_EXPLODED = 10  # times the loss at the start

Progress = Callable[[int, int, float], None]  # windows done, windows in all, images/s


class Input:
    """This rank's batches, moved to the device; keeps how long each step waited for its batch, in
    seconds of the host's clock.
    """

    def __init__(self, config: RunConfig, batches: Iterator[Batch], device: torch.device) -> None:
        self._batches, self._device = batches, device
        self._dtype, self._format = (
            precision.parameter_dtype(config),
            precision.memory_format(config),
        )
        self.samples = 0
        self.wait_seconds: list[float] = []

    def step(self) -> Batch:
        """Images [samples_per_rank, 3, size, size] and labels [samples_per_rank]."""
        # the host waits for the batch, so the host's clock: the stopwatch's would sync the device
        # inside the window
        asked = time.perf_counter()
        images, labels = next(self._batches)
        self.wait_seconds.append(time.perf_counter() - asked)
        self.samples += len(labels)
        images = images.to(self._device, self._dtype, non_blocking=True, memory_format=self._format)
        return images, labels.to(self._device, non_blocking=True)


class Loop:
    """A model in training; `step` is one optimiser update. Keeps the loss of each of the run's
    steps, in `losses` [steps].
    """

    def __init__(
        self, config: RunConfig, backend: Backend, network: torch.nn.Module, data: Input
    ) -> None:
        self._config, self._backend, self._network, self._input = config, backend, network, data
        optimizer = torch.optim.SGD(
            network.parameters(),
            lr=config.learning_rate(0),
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.nesterov,
        )
        if config.compile:
            # the network and not what wraps it: DDP's forward pass is then not traced, and can hold
            # any process group
            network.compile()
        self._model, self._optimizer = backend.wrap(network, optimizer)
        self._model.train()
        self._autocast = precision.autocast(config)
        self._steps = 0  # taken so far
        # one tensor for all: thousands of small ones would lie about in the memory that the steps
        # need
        self.losses = torch.full(
            (config.steps,), math.nan, dtype=torch.float64, device=next(network.parameters()).device
        )

    @property
    def steps(self) -> int:
        """Optimiser updates done."""
        return self._steps

    def step(self) -> None:
        images, labels = self._input.step()
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.learning_rate(self._steps)
        self._backend.zero_grad()
        loss = (
            self._accumulate(images, labels)
            if self._config.accumulate > 1
            else self._backward(images, labels)
        )
        if not self._steps and not self._config.unused_parameters:
            self._require_gradients()
        self._backend.finish_backward()
        if self._config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._config.clip_norm)
        self._backend.step()
        self.losses[self._steps] = loss
        self._steps += 1

    def _backward(self, images: torch.Tensor, labels: torch.Tensor, parts: int = 1) -> torch.Tensor:
        """Forward and backward of one micro-batch, one of `parts`; its share of the step's loss."""
        with self._autocast:
            loss = cross_entropy(self._forward(images), labels)
        if parts > 1:
            loss = loss / parts
        self._backend.backward(loss)
        return loss.detach()

    def _accumulate(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Micro-batch after micro-batch; the gradients are exchanged with the last one alone."""
        size, parts = self._config.samples_per_microbatch, self._config.accumulate
        total = torch.zeros((), device=images.device, dtype=images.dtype)
        for index, part in enumerate(zip(images.split(size), labels.split(size), strict=True)):
            with nullcontext() if index == parts - 1 else self._backend.accumulating():
                total = total + self._backward(*part, parts)
        return total

    def _forward(self, images: torch.Tensor) -> torch.Tensor:
        try:
            output: torch.Tensor = self._model(images)
        except Exception:
            if not self._steps:
                self._blame_the_model(images)
            raise
        return output

    def _blame_the_model(self, images: torch.Tensor) -> None:
        """Raise UsageError where a torchvision model fails without any backend too: it does not fit
        this input.
        """
        if ":" in self._config.model:
            return  # whoever wrote the model wants the traceback
        try:
            self._network(images)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(
                f"model={self._config.model} cannot train on a batch of shape "
                f"{list(images.shape)} ({reason}); "
                "choose another --image-size, batch or --model"
            ) from None

    def _require_gradients(self) -> None:
        """Raise UsageError where the first step left a parameter without gradient: frameworks then
        do different things.
        """
        idle = [
            name
            for name, p in self._network.named_parameters()
            if p.requires_grad and p.grad is None
        ]
        if idle:
            raise UsageError(
                f"model={self._config.model} left {len(idle)} parameter(s) without gradient, such "
                f"as {idle[0]}: "
                "freeze them (requires_grad=False), or use --unused-parameters"
            )


def measure(
    step: Callable[[], object],
    data: Input,
    backend: Backend,
    config: RunConfig,
    log: RunLog,
    watch: Stopwatch,
    progress: Progress,
) -> None:
    """Warm up, then time the windows; after each, outside the clock, every rank's seconds go to the
    log.
    """
    warmup = time_steps(step, config.warmup_steps, watch)
    _record(backend, log, "warmup", 0, warmup.step_seconds)
    for index in range(config.windows):
        backend.barrier()
        window = time_steps(step, config.steps_per_window, watch)
        seconds = backend.all_reduce(window.seconds, "max")
        _record(backend, log, "window", index, window.step_seconds)
        waited = backend.gather(sum(data.wait_seconds[-config.steps_per_window :]))
        log.write(
            "window",
            index=index,
            steps=config.steps_per_window,
            seconds=seconds,
            input_seconds=waited,
        )
        images = config.samples_per_step * config.steps_per_window
        progress(index + 1, config.windows, images / seconds)


def _record(
    backend: Backend, log: RunLog, phase: str, index: int, step_seconds: list[float]
) -> None:
    log.write("steps", phase=phase, index=index, seconds=backend.gather(step_seconds))


def check_samples(data: Input, backend: Backend, config: RunConfig) -> dict[str, object]:
    """Did every rank get its samples? Needs every rank's call."""
    sampled = backend.all_reduce(data.samples, "sum")
    right = (
        sampled == config.steps * config.samples_per_step and len(data.wait_seconds) == config.steps
    )
    return {"checks": {"samples_per_step": right}, "samples": int(sampled)}


def check_training(
    loop: Loop, backend: Backend, config: RunConfig, model: torch.nn.Module, classes: int
) -> dict[str, object]:
    """Did the training do what was asked? Losses and parameters of all ranks, compared; needs every
    rank's call.
    """
    losses = loop.losses.tolist()
    digests = backend.gather(digest(model))
    finite = backend.all_reduce(float(all(math.isfinite(loss) for loss in losses)), "min")
    bounded = backend.all_reduce(
        float(loss_bounded(losses, config.steps_per_window, classes)), "min"
    )
    return {
        "checks": {
            "loss_finite": finite == 1.0,
            "loss_bounded": bounded == 1.0,
            "parameters_equal": len(set(digests)) == 1,
        },
        "first_loss": backend.all_reduce(losses[0], "sum") / config.world_size,
        "last_loss": backend.all_reduce(losses[-1], "sum") / config.world_size,
        "parameters_sha256": digests[0],
    }


def loss_bounded(losses: Sequence[float], steps_per_window: int, classes: int) -> bool:
    """Is the mean loss of the last window at most ten times what the training began with?

    That is the first loss or ln(classes), the loss of a guess, whichever is larger. Noise of small
    batches and the first steps' overshoot stay far below ten times; a rate that is too high passes
    it within a few steps, and grows on for ever.
    """
    last = losses[-steps_per_window:]
    return sum(last) / len(last) <= _EXPLODED * max(losses[0], math.log(classes))


def digest(model: torch.nn.Module) -> str:
    """SHA-256 of all parameters, bit for bit, in order of definition; the layout in memory makes no
    difference.
    """
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(
            parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return sha.hexdigest()
