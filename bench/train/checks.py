"""Did the run do what was asked? Samples, losses and parameters of all ranks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch

from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.instrument.emulation import Emulation
from bench.instrument.parity import Parity
from bench.train.input import Input
from bench.train.loop import Loop

_EXPLODED = 10  # times the loss at the start


def check_samples(data: Input, backend: Backend, config: RunConfig) -> dict[str, Any]:
    """Check that every rank got its samples; needs every rank's call."""
    sampled = backend.reduce_scalar(data.samples, "sum")
    complete = sampled == config.steps * config.samples_per_step
    complete = complete and len(data.wait_seconds) == config.steps
    return {"checks": {"samples_per_step": complete}, "samples": int(sampled)}


def check_training(
    loop: Loop,
    parity: Parity | None,
    backend: Backend,
    config: RunConfig,
    model: torch.nn.Module,
    classes: int,
) -> dict[str, Any]:
    """Check that all ranks' losses and parameters are as they must be; needs every rank's call."""
    losses = loop.losses.tolist()
    digests = backend.gather(digest(model))

    def on_all_ranks(passed: bool) -> bool:
        return backend.reduce_scalar(float(passed), "min") == 1.0

    checks = {
        "loss_finite": on_all_ranks(all(math.isfinite(loss) for loss in losses)),
        "loss_bounded": on_all_ranks(loss_bounded(losses, config.steps_per_window, classes)),
        **(_parameters(config, len(set(digests))) if config.averages else {}),
        **({} if parity is None else {"parity": parity.holds}),
    }
    return {
        "parity": [] if parity is None else parity.record(),
        "checks": checks,
        "first_loss": backend.reduce_scalar(losses[0], "sum") / config.world_size,
        "last_loss": backend.reduce_scalar(losses[-1], "sum") / config.world_size,
        **({"parameters_sha256": digests[0]} if config.averages else {}),  # of all ranks
    }


def check_emulation(
    emulation: Emulation, backend: Backend, config: RunConfig, model: torch.nn.Module
) -> dict[str, Any]:
    """Check an emulated run, whose loss means nothing: whether the gradients of all steps were
    averaged. Needs every rank's call.
    """
    digests = backend.gather(digest(model))
    averaged = backend.reduce_scalar(float(emulation.averaged_steps == config.steps), "min") == 1.0
    checks = {"gradients_averaged": averaged, **_parameters(config, len(set(digests)))}
    return {"checks": checks, "parameters_sha256": digests[0]}


def _parameters(config: RunConfig, kinds: int) -> dict[str, bool]:
    """Check that ranks that exchanged end with equal parameters, and others with different ones.

    `kinds`: number of different sets of parameters at the end.
    """
    if config.ranks_part:
        return {"parameters_differ": kinds == config.world_size}
    return {"parameters_equal": kinds == 1}


def loss_bounded(losses: Sequence[float], steps_per_window: int, classes: int) -> bool:
    """Check if the last window's mean loss is at most ten times the first loss, or a guess's loss.

    Noise of small batches and the first steps' overshoot stay far below that. A learning rate that
    is too high exceeds it within a few steps.
    """
    last_window = losses[-steps_per_window:]
    return sum(last_window) / len(last_window) <= _EXPLODED * max(losses[0], math.log(classes))


def digest(model: torch.nn.Module) -> str:
    """Compute the SHA-256 of all parameters, bit for bit, in order of definition, in any layout."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        in_order = parameter.detach().cpu().contiguous().reshape(-1)
        sha.update(in_order.view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
