"""The division of gradients into buckets that are exchanged together, by the rule of DDP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

T = TypeVar("T", bound=torch.Tensor)


def buckets(parameters: Sequence[T], bucket_bytes: int, rebuilt: bool = True) -> list[list[T]]:
    """List buckets of those `parameters` that are trained, from the last parameter to the first.

    A bucket is full at `bucket_bytes` or more; the one filled last may have less. Filling begins
    with the last parameter. Without `rebuilt` it begins with the first, as DDP does if it looks
    for unused parameters. A bucket may mix dtypes.
    """
    trained = [p for p in parameters if p.requires_grad]
    filled: list[list[T]] = []
    for parameter in reversed(trained) if rebuilt else trained:
        if not filled or sum(p.nbytes for p in filled[-1]) >= bucket_bytes:
            filled.append([])
        filled[-1].append(parameter)
    return filled if rebuilt else [bucket[::-1] for bucket in reversed(filled)]
