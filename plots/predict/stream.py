"""The exchange of a step: gradients become ready, are grouped, and are reduced one after another.

Every function works on many rows at once, such as numbers of ranks: `factors` stretch a row's
times, and `cost` gives the seconds of messages, one size for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from bench.backends.buckets import cut, limits
from plots.predict.costs import Array, Cost

_HAIR = 1e-9  # of a cycle: a gradient that becomes ready with a tick is seen by it


@dataclass(frozen=True, kw_only=True, eq=False)
class Operations:
    """Start, end and bytes of every reduction, [row, operation]; 0 bytes fill a row up."""

    start_s: Array
    end_s: Array
    sizes: Array  # bytes

    @classmethod
    def of(cls, columns: Sequence[tuple[Array, Array, Array]]) -> Self:
        """From start, end and bytes of each operation, by row."""
        start_s, end_s, sizes = (np.stack(values, axis=1) for values in zip(*columns, strict=True))
        return cls(start_s=start_s, end_s=end_s, sizes=sizes)

    @property
    def last_end_s(self) -> Array:
        return self.end_s[:, -1]

    @property
    def busy_s(self) -> Array:
        """Seconds of all reductions of a row."""
        return np.asarray(np.sum(self.end_s - self.start_s, axis=1))


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """Fixed groups in order of readiness, each reduced once its last gradient is ready.

    The hooks of a backward pass start them, so nothing is negotiated.
    """

    limits_bytes: tuple[int, ...] = field(default_factory=lambda: limits(None))

    def run(self, sizes: Array, ready_s: Array, factors: Array, cost: Cost) -> Operations:
        """`ready_s` of each gradient after the step's begin, ascending; `sizes` in bytes."""
        end = np.zeros_like(factors)
        columns = []
        for bucket in cut(sizes.astype(int).tolist(), self.limits_bytes):
            size = np.full_like(factors, sizes[bucket.start : bucket.stop].sum())
            start = np.maximum(ready_s[bucket.stop - 1] * factors, end)
            end = start + cost(size)
            columns.append((start, end, size))
        return Operations.of(columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cycles:
    """At each tick every ready gradient, in order, fused up to a threshold.

    Ticks count from the step's begin. Ranks agree on what is ready in `negotiation_s`, by row.
    Fused gradients are copied there and back at `copy_bytes_per_s`. `blocking`, as of operations on
    CPUs: no tick before the last one's reductions have ended, so that gradients pile up.
    """

    # Horovod's defaults since November 2020 (its pull request 2468); before, 5 ms and 64 MiB
    cycle_s: float = 1e-3
    fusion_bytes: float = 128 * 2**20
    copy_bytes_per_s: float = np.inf
    blocking: bool = False
    negotiation_s: Array | float = 0.0

    def run(self, sizes: Array, ready_s: Array, factors: Array, cost: Cost) -> Operations:
        """As `Buckets.run`. Rows advance together, by one reduction in each round."""
        totals = np.concatenate([[0.0], np.cumsum(sizes)])
        # by gradients reduced: the next that does not fit into one fused reduction
        full = np.searchsorted(totals, totals + self.fusion_bytes, "right") - 1
        negotiation = np.broadcast_to(self.negotiation_s, factors.shape)
        period = np.maximum(self.cycle_s, negotiation)  # of a tick that finds nothing
        done = seen = np.zeros(factors.shape, int)  # gradients reduced, and those of the tick
        tick, end = -period, np.zeros_like(factors)
        columns = []
        while np.any(active := done < len(sizes)):
            first = np.minimum(done, len(sizes) - 1)
            earliest = tick + period
            if self.blocking:
                earliest = np.maximum(earliest, end)
            idle = np.ceil((ready_s[first] * factors - earliest) / period - _HAIR)
            following = earliest + np.maximum(idle, 0) * period
            tick = np.where(active & (done == seen), following, tick)
            visible = (tick + _HAIR * period) / factors
            seen = np.where(done == seen, np.searchsorted(ready_s, visible, "right"), seen)
            after = np.where(active, np.maximum(first + 1, np.minimum(full[done], seen)), done)
            size = totals[after] - totals[done]
            copies = np.where(after - done > 1, 2 * size / self.copy_bytes_per_s, 0.0)
            start = np.where(active, np.maximum(tick + negotiation, end), end)
            end = np.where(active, start + cost(size) + copies, end)
            columns.append((start, end, size))
            done, seen = after, np.maximum(seen, after)
        return Operations.of(columns)
