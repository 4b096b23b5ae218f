"""The loss of a batch, for the training loop and the checks of its gradients."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from bench.config import RunConfig


def mean_loss(config: RunConfig, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Compute the mean cross-entropy, a scalar, of scores [n, classes] and labels [n]."""
    return cross_entropy(output, labels, label_smoothing=config.label_smoothing)
