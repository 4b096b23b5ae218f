"""Which gradients travel together: DDP's rule, for every backend that is told its buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol, TypeVar

_FIRST_BYTES, _CAP_MIB = 2**20, 25  # DDP's defaults: a small first bucket starts the exchange early


class _Parameter(Protocol):
    requires_grad: bool

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=_Parameter)


def limits(cap_mib: float | None) -> tuple[int, ...]:
    """Return the bytes at which DDP closes its first bucket and others; None is its default cap.

    An explicit cap is that of the first bucket too, so 25 is not the default.
    """
    if cap_mib is None:
        return _FIRST_BYTES, _CAP_MIB * 2**20
    return (int(cap_mib * 2**20),)


def cut(sizes: Sequence[int], limits_bytes: Sequence[int]) -> Iterator[range]:
    """Yield positions of each bucket's tensors: whole ones, in order, till they reach its limit.

    The last limit is that of all further buckets. Tensors are of one type and device, as DDP cuts
    each type by itself.
    """
    begin, closed, bucket = 0, 0, 0
    for end, total in enumerate(accumulate(sizes), start=1):
        limit = limits_bytes[min(bucket, len(limits_bytes) - 1)]
        if total - closed >= limit or end == len(sizes):
            yield range(begin, end)
            begin, closed, bucket = end, total, bucket + 1


def buckets(parameters: Sequence[T], bucket_bytes: int) -> Iterator[list[T]]:
    """Yield buckets of the trained parameters in reverse order, cut at one limit."""
    trained = [p for p in reversed(parameters) if p.requires_grad]
    for places in cut([p.nbytes for p in trained], (bucket_bytes,)):
        yield [trained[place] for place in places]
