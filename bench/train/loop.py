"""The one training loop, with the same statements for every backend."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import repeat

import torch
from torch.nn.functional import cross_entropy

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.config.fields import MOMENTUM
from bench.data import Batch
from bench.instrument import Observer
from bench.models import require_pictures, require_scores
from bench.train import numbers
from bench.train.numbers import seed_beside_torch


class Input:
    """This rank's batches, moved to the device; `wait_seconds` has the wait for each batch."""

    def __init__(self, config: RunConfig, batches: Iterator[Batch], device: torch.device) -> None:
        self._device = device
        self._dtype = numbers.parameter_dtype(config)
        self._format = numbers.memory_format(config)
        # what is on the device in its form is not copied again
        resident = config.preprocessing == "resident"
        self._batches = repeat(self._moved(next(batches))) if resident else batches
        self.samples = 0
        self.wait_seconds: list[float] = []  # of the host's clock

    def step(self) -> Batch:
        """Return images [samples_per_rank, 3, size, size] and labels [samples_per_rank]."""
        # the host waits, so the host's clock: the stopwatch's would sync the device in the window
        wait_began = time.perf_counter()
        images, labels = next(self._batches)
        self.wait_seconds.append(time.perf_counter() - wait_began)
        self.samples += len(labels)
        return self._moved((images, labels))

    def _moved(self, batch: Batch) -> Batch:
        images, labels = batch
        images = images.to(self._device, self._dtype, non_blocking=True, memory_format=self._format)
        return images, labels.to(self._device, non_blocking=True)


class Loop:
    """A model in training for `steps` steps, by default as many as the run has.

    With `classes`, the loop checks the first batch and its scores. `losses` [steps], float64, are
    this rank's losses of all steps, NaN for steps still to come.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        network: torch.nn.Module,
        data: Input,
        observer: Observer | None = None,
        steps: int | None = None,
        classes: int | None = None,
    ) -> None:
        self._config, self._network, self._input = config, network, data
        self._observer = observer or Observer()
        self._steps_in_all, self._classes = steps or config.steps, classes
        optimizer = torch.optim.SGD(
            network.parameters(),
            lr=config.learning_rate(0, self._steps_in_all),
            momentum=MOMENTUM,
            weight_decay=config.weight_decay,
            nesterov=config.nesterov,
        )
        self.session = backend.wrap(network, optimizer, config)
        self.session.model.train()
        self._observer.session_ready(self.session)
        # torch's come from the model's making on; what frameworks draw of these differs
        seed_beside_torch(config.seed)
        self._autocast = numbers.autocast(config)
        self._all_names = {name for name, _ in network.named_parameters()}
        self._trained = {n: p for n, p in network.named_parameters() if p.requires_grad}
        self.steps = 0  # optimiser updates done
        self.one_label: int | None = None  # of all samples of the first batch, of four or more
        # one tensor for all: thousands of small ones would fragment the memory that steps need
        self.losses = torch.full(
            (self._steps_in_all,),
            math.nan,
            dtype=torch.float64,
            device=next(network.parameters()).device,
        )

    def step(self) -> None:
        """Do one update. Raises UsageError for a model that cannot train or a wrong first batch."""
        self._observer.step_begin(self.steps)
        images, labels = self._input.step()
        rate = self._config.learning_rate(self.steps, self._steps_in_all)
        for group in self.session.optimizer.param_groups:
            group["lr"] = rate
        self.session.zero_grad()
        self._observer.batch_ready(images, labels)
        backward = self._accumulate if self._config.accumulate > 1 else self._backward
        loss = backward(images, labels)
        # in every step, some 0.07 us a parameter: DDP fails where Horovod goes on with zeros
        trained = self._trained.values()
        if not self._config.unused_parameters and any(p.grad is None for p in trained):
            raise self._idle()
        self.session.synchronize_gradients()
        self._observer.gradients_ready()
        if self._config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._config.clip_norm)
        self.session.step()
        self.losses[self.steps] = loss
        self.steps += 1
        self._observer.step_end()

    def _backward(self, images: torch.Tensor, labels: torch.Tensor, parts: int = 1) -> torch.Tensor:
        """Run one of `parts` micro-batches forward and back; return its part of the step's loss."""
        with self._autocast:
            scores = self._forward(images)
            if not self.steps and self._classes is not None:
                require_pictures(images, self._config)
                require_scores(scores, labels, self._classes, self._config)
                self._require_no_more_parameters()
                if len(labels) > 3 and labels.min() == labels.max():
                    self.one_label = int(labels[0])
            loss = cross_entropy(scores, labels, label_smoothing=self._config.label_smoothing)
        self._observer.forward_done()
        if not loss.requires_grad:
            frozen = f"model={self._config.model} has nothing left to train"
            raise UsageError(f"{frozen} in step {self.steps + 1}; leave a parameter unfrozen")
        if parts > 1:
            loss = loss / parts
        self.session.backward(loss)
        self._observer.backward_done()
        return loss.detach()

    def _accumulate(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run all micro-batches; return the step's loss. Only the last exchanges gradients."""
        size, parts = self._config.samples_per_microbatch, self._config.accumulate
        total = torch.zeros((), device=images.device, dtype=images.dtype)
        for index, part in enumerate(zip(images.split(size), labels.split(size), strict=True)):
            with nullcontext() if index == parts - 1 else self.session.no_sync():
                total = total + self._backward(*part, parts)
        return total

    def _require_no_more_parameters(self) -> None:
        made = [n for n, _ in self._network.named_parameters() if n not in self._all_names]
        if made:
            late = f"made {made[0]} in its first forward pass, so no backend knows it"
            raise UsageError(f"model={self._config.model} {late}; make it in the factory")

    def _idle(self) -> UsageError:
        """Return the error for trained parameters that a step left without a gradient."""
        idle = [name for name, p in self._trained.items() if p.grad is None]
        when = f" in step {self.steps + 1}" if self.steps else ""
        return UsageError(
            f"model={self._config.model} left {len(idle)} parameter(s) without gradient{when}, "
            f"such as {idle[0]}: freeze them before the run (requires_grad=False), or use "
            "--unused-parameters"
        )

    def _forward(self, images: torch.Tensor) -> torch.Tensor:
        try:
            output: torch.Tensor = self.session.model(images)
        except Exception:
            if not self.steps and ":" not in self._config.model:  # an author wants the traceback
                self._require_fit(images)
            raise
        return output

    def _require_fit(self, images: torch.Tensor) -> None:
        """Raise UsageError if the model fails on `images` even without a backend."""
        try:
            self._network(images)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(
                f"model={self._config.model} cannot train on a batch of shape {list(images.shape)} "
                f"({reason}); choose another --image-size, batch or --model"
            ) from None
