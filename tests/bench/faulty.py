"""A model and a data set in which one rank meets a planned fault in its sixth step: FAULT says
which, FAULT_RANK on whom, FAULT_WORLD in which of the worlds that take turns.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # the first step would, in silence for as long as a busy machine takes
from torch import nn

from bench.config import RunConfig
from tests.bench.tiny import plain

WORLD = "FAULT_WORLD"
OF_DATA = {"hung loader", "killed loader"}
AT = 6  # step of the fault, 1 being the first
BATCH = 4  # images of a rank's step


def _hold() -> None:
    """Wait until the test removes the file, at most 120 s where it forgets to."""
    for _ in range(1200):
        if not Path(os.environ["FAULT_AT"]).exists():
            break
        time.sleep(0.1)


def _raise() -> None:
    raise RuntimeError("planted failure")


class _HangsWhenForgotten:
    def __del__(self) -> None:
        time.sleep(3600)


FAULTS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "sys.exit(0)": lambda: sys.exit(0),
    "os._exit(0)": lambda: os._exit(0),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hung model": lambda: time.sleep(3600),
    "hung loader": lambda: time.sleep(3600),
    "killed loader": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hung at exit": lambda: atexit.register(time.sleep, 3600),
    "held step": _hold,
    "none": lambda: None,
}


def happen(*names: str) -> None:
    """Cause the planned fault if it is one of `names`; leave the moment in the file FAULT_AT."""
    name = os.environ["FAULT"]
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0"))
    world = os.environ.get("BENCH_TURNS", "- 0 -").split()[1]
    is_here = (rank, world) == (os.environ.get("FAULT_RANK", "0"), os.environ.get(WORLD, world))
    if name in names and is_here:
        Path(os.environ["FAULT_AT"]).write_text(str(time.monotonic()))
        FAULTS[name]()


class _Model(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inner, self.calls = plain(classes), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == AT + 1:  # one was for the check of parity
            happen(*(FAULTS.keys() - OF_DATA))
            if os.environ["FAULT"] == "hung at the close":
                self.last = _HangsWhenForgotten()
        result: torch.Tensor = self.inner(images)
        return result


class _Images:
    """Images of a ramp, made in the training process or in a loading one."""

    classes = 10

    def __init__(self, image_size: int) -> None:
        self.size, self.calls = image_size, 0

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.calls += 1
        if self.calls == (AT - 1) * BATCH + 2:  # the first was for trying it out
            happen(*OF_DATA)
        return torch.linspace(0, 1, 3 * self.size**2).view(3, self.size, self.size), index % 10


def model(classes: int) -> nn.Module:
    return _Model(classes)


def images(config: RunConfig) -> _Images:
    return _Images(config.image_size)
