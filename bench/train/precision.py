"""Number formats: what weights, gradients and activations are made of, for every backend alike."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from bench.config import RunConfig

# every other precision keeps them in float32
_PARAMETERS = {"float64": torch.float64, "bf16": torch.bfloat16}
_MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def parameter_dtype(config: RunConfig) -> torch.dtype:
    """Name the type of weights, and so of gradients."""
    return _PARAMETERS.get(config.precision, torch.float32)


def memory_format(config: RunConfig) -> torch.memory_format:
    """Name the layout of 4-dimensional weights and activations."""
    return _MEMORY_FORMATS[config.memory_format]


def autocast(config: RunConfig) -> AbstractContextManager[object]:
    """Make the context of forward passes: bfloat16 where safe, with bf16-mixed; else nothing."""
    mixed = config.precision == "bf16-mixed"
    return torch.autocast(config.device, torch.bfloat16) if mixed else nullcontext()
