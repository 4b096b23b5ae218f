"""Why a first step went wrong, where the model is to blame: one line instead of a traceback."""

from __future__ import annotations

import torch

from bench.config import RunConfig, UsageError


def require_fit(network: torch.nn.Module, config: RunConfig, images: torch.Tensor) -> None:
    """Raise UsageError where a torchvision model fails on `images` without any backend too."""
    if ":" in config.model:
        return  # the author of a model wants the traceback
    try:
        network(images)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"model={config.model} cannot train on a batch of shape {list(images.shape)} "
            f"({reason}); choose another --image-size, batch or --model"
        ) from None


def require_gradients(network: torch.nn.Module, config: RunConfig) -> None:
    """Raise UsageError where a step left a parameter without gradient: frameworks then differ."""
    idle = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
    if idle:
        raise UsageError(
            f"model={config.model} left {len(idle)} parameter(s) without gradient, such as "
            f"{idle[0]}: freeze them (requires_grad=False), or use --unused-parameters"
        )
