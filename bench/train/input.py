"""This rank's batches on their way to the device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import repeat

import torch

from bench.config import RunConfig
from bench.data import Batch
from bench.train import precision


class Input:
    """This rank's batches, moved to the device; keeps how long each step waited for its own."""

    def __init__(self, config: RunConfig, batches: Iterator[Batch], device: torch.device) -> None:
        self._device = device
        self._dtype = precision.parameter_dtype(config)
        self._format = precision.memory_format(config)
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
