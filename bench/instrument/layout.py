"""Layout: gradients whose strides are not their parameters', and what copying them takes.

DDP's buckets have the strides of the parameters, and torch warns of every other gradient. autograd
copies a gradient of another order in memory by itself, in every training, before any backend sees
it; what is left differs in dimensions of one element, as of a 1x1 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bench.train.timing import Stopwatch

_COPIES = 10


def strided_gradients(network: torch.nn.Module, watch: Stopwatch) -> dict[str, Any]:
    """How many gradients `of` all have other strides, and their bytes, as the last step left them.

    And seconds of each of ten copies of all of them into tensors with their parameters' strides:
    copy_seconds from the strides that they have, ordered_copy_seconds from their parameters'.
    """
    gradients = [(p.grad.detach(), p.detach()) for p in network.parameters() if p.grad is not None]
    # a sparse one has no strides, and no place in a bucket
    dense = [(g, p) for g, p in gradients if g.layout == torch.strided]
    other = [(g, p) for g, p in dense if g.stride() != p.stride()]
    strided = [gradient for gradient, _ in other]
    counts = {"count": len(other), "of": len(gradients), "bytes": sum(g.nbytes for g in strided)}
    if not other:
        return counts
    ordered = [torch.empty_like(p).copy_(g) for g, p in other]
    buckets = [torch.empty_like(tensor) for tensor in ordered]
    pairs = [
        (_seconds(watch, buckets, strided), _seconds(watch, buckets, ordered))
        for _ in range(_COPIES + 1)
    ]
    copy_seconds, ordered_seconds = zip(*pairs[1:], strict=True)  # the first warms up
    return {
        **counts,
        "copy_seconds": [*copy_seconds],
        "ordered_copy_seconds": [*ordered_seconds],
    }


def _seconds(
    watch: Stopwatch, into: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> float:
    """Of one copy of all `tensors`."""
    began = watch.now()
    for bucket, tensor in zip(into, tensors, strict=True):
        bucket.copy_(tensor)
    return watch.now() - began
