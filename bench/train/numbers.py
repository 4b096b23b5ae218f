"""Data types and memory layouts of a training, and seeds of its random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch

from bench.config import RunConfig

# every other precision keeps them in float32
_PARAMETERS = {"float64": torch.float64, "bf16": torch.bfloat16}
_MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def parameter_dtype(config: RunConfig) -> torch.dtype:
    """Return the type of weights, and so of gradients."""
    return _PARAMETERS.get(config.precision, torch.float32)


def memory_format(config: RunConfig) -> torch.memory_format:
    """Return the memory layout of 4-dimensional weights and activations."""
    return _MEMORY_FORMATS[config.memory_format]


def autocast(config: RunConfig) -> AbstractContextManager[object]:
    """Make the context of forward passes: bfloat16 autocast for bf16-mixed, else a no-op."""
    mixed = config.precision == "bf16-mixed"
    return torch.autocast(config.device, torch.bfloat16) if mixed else nullcontext()


def seed_all(seed: int) -> None:
    """Seed torch's, numpy's and Python's global random numbers with `seed`, 0 or more."""
    torch.manual_seed(seed)
    seed_beside_torch(seed)


def seed_beside_torch(seed: int) -> None:
    """Seed numpy's and Python's global random numbers with `seed`, 0 or more."""
    random.seed(seed)
    np.random.seed(np.random.SeedSequence(seed).generate_state(8))


class RandomState:
    """State of this process's global random numbers (torch, numpy, Python) at construction."""

    def __init__(self) -> None:
        self._torch, self._numpy = torch.get_rng_state(), np.random.get_state()
        self._python = random.getstate()
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state() if cuda else None

    def restore(self) -> None:
        """Set all global random numbers back to this state."""
        torch.set_rng_state(self._torch)
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's CPU, numpy's and Python's random numbers in the block; restore all after it."""
    before = RandomState()
    torch.default_generator.manual_seed(seed)
    seed_beside_torch(seed)
    try:
        yield
    finally:
        before.restore()
