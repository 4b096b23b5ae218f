"""The division of gradients into buckets that are exchanged together, by the rule of DDP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

T = TypeVar("T", bound=torch.Tensor)


def buckets(parameters: Sequence[T], bucket_bytes: int, rebuilt: bool = True) -> list[list[T]]:
    """Divide the trainable `parameters` into buckets, listed from the last parameter to the first.

    A bucket is full at `bucket_bytes` or more. Only the bucket of the first parameters may have
    less. With rebuilt=False it is that of the last parameters, as in a DDP that looks for unused
    parameters. A bucket may mix dtypes.
    """
    trained = [p for p in parameters if p.requires_grad]
    filled: list[list[T]] = []
    for parameter in reversed(trained) if rebuilt else trained:
        if not filled or sum(p.nbytes for p in filled[-1]) >= bucket_bytes:
            filled.append([])
        filled[-1].append(parameter)
    return filled if rebuilt else [bucket[::-1] for bucket in reversed(filled)]
