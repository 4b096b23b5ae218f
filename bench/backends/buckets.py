"""The division of gradients into buckets that are exchanged together, by the rule of DDP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T", bound=torch.Tensor)


def buckets(parameters: Sequence[T], bucket_bytes: int) -> Iterator[list[T]]:
    """Yield buckets of those `parameters` that are trained, from the last parameter to the first.

    A bucket ends once it has `bucket_bytes` or more; the last may have less. Dtypes may be mixed.
    """
    bucket: list[T] = []
    for parameter in reversed(parameters):
        if parameter.requires_grad:
            bucket.append(parameter)
            if sum(p.nbytes for p in bucket) >= bucket_bytes:
                yield bucket
                bucket = []
    if bucket:
        yield bucket
