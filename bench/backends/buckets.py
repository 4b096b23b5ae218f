"""Which gradients travel together: DDP's rule, for every backend that is given its buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T", bound=torch.Tensor)


def buckets(parameters: Sequence[T], bucket_bytes: int) -> Iterator[list[T]]:
    """Yield groups of trained parameters, last first, each closed at `bucket_bytes` or more.

    The last group may be smaller. Dtypes and devices are not looked at.
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
