"""What gradients in other strides than their parameters' cost a step, from a log's end."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WARNING = "Grad strides do not match bucket view strides"  # torch's words, of DDP's buckets


@dataclass(frozen=True)
class Strides:
    """`count` `of` all gradients, `size_bytes` in all, lie in other strides; copying them takes
    `added_s` longer than it would in their parameters' strides (less than 0: shorter).
    """

    count: int
    of: int
    size_bytes: int
    added_s: float

    def words(self, step_s: float) -> str:
        """One sentence, its cost as a part of a step of `step_s`."""
        size = f"{self.count} of {self.of} gradients ({self.size_bytes / 2**20:.3g} MiB)"
        cost = f"{1000 * self.added_s:+.3g} ms ({self.added_s / step_s:+.2%} of a step)"
        return (
            f'{size} lie in other strides than their parameters ("{WARNING}"), which changes the '
            f"time of copying them by {cost}"
        )


def strides(end: Mapping[str, Any]) -> Strides | None:
    """Medians of the copies that the log has; None where it has none, as of an emulation."""
    logged = end.get("strided_gradients")
    if logged is None:
        return None
    added_s = 0.0
    if logged["count"]:
        copies = [logged.get(name) for name in ("copy_seconds", "ordered_copy_seconds")]
        if not all(copies):
            return None
        added_s = statistics.median(copies[0]) - statistics.median(copies[1])
    return Strides(logged["count"], logged["of"], logged["bytes"], added_s)
