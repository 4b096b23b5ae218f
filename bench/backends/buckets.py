"""Which gradients travel together: one rule for every backend that is told its buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T", bound=torch.Tensor)


def buckets(parameters: Sequence[T], bucket_bytes: int) -> Iterator[list[T]]:
    """Parameters in reverse order, cut as DDP cuts them: whole tensors, till they reach the cap."""
    bucket: list[T] = []
    for parameter in reversed([p for p in parameters if p.requires_grad]):
        bucket.append(parameter)
        if sum(p.nbytes for p in bucket) >= bucket_bytes:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
