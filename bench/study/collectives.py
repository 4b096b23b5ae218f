"""Times of collectives against bytes: bandwidths, and lines of latency and bandwidth."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.config import UsageError
from bench.record.archive import read_file

KINDS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter")
_LEAST = 3  # sizes of a regime: a line through two always fits


def bus_factor(kind: str, ranks: int) -> float:
    """Count bytes on the busiest link per byte of the whole, in the best algorithm (nccl-tests)."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "broadcast": 1.0}.get(kind, share)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One collective at one size: seconds of each repetition on its slowest rank.

    `bytes` are of the whole: what a rank holds before a reduction or after a gathering.
    """

    kind: str
    bytes: int
    ranks: int
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return median(self.seconds)

    @property
    def bytes_per_s(self) -> float:
        """Algorithm bandwidth: bytes of the whole over the median time."""
        return self.bytes / self.median_s

    @property
    def bus_bytes_per_s(self) -> float:
        """Bus bandwidth: comparable between collectives and numbers of ranks (nccl-tests)."""
        return self.bytes_per_s * bus_factor(self.kind, self.ranks)


@dataclass(frozen=True, kw_only=True)
class CostLine:
    """seconds = latency_s + s_per_byte * bytes, from the first size of a regime to its last."""

    first_bytes: float
    last_bytes: float
    latency_s: float
    s_per_byte: float
    worst: float  # largest relative difference between the line and a median

    def seconds(self, size: float) -> float:
        return self.latency_s + self.s_per_byte * size

    @property
    def bytes_per_s(self) -> float | None:
        """Algorithm bandwidth of a large tensor; None where size cost nothing."""
        return 1 / self.s_per_byte if self.s_per_byte else None


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> list[CostLine]:
    """Fit one line to small sizes and one to large, parted where both fit best; one line to few.

    Hockney's model (1994). Least relative squares: a microsecond counts as much as a second.
    """
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    x, t = [sizes[i] for i in order], [seconds[i] for i in order]
    if len(x) < 2:
        return []
    cuts = range(_LEAST, len(x) - _LEAST + 1)
    ways = [[(0, cut), (cut, len(x))] for cut in cuts] or [[(0, len(x))]]
    candidates = [[line(x[a:b], t[a:b]) for a, b in way] for way in ways]
    return [best for best, _ in min(candidates, key=lambda way: sum(lost for _, lost in way))]


def line(x: Sequence[float], t: Sequence[float]) -> tuple[CostLine, float]:
    """Fit the line, neither of whose parts is negative, and sum its relative squares."""
    import numpy as np  # here: ranks that only measure read this file, and load torch first

    times, ones = np.array(t, float), np.ones(len(x))
    columns = np.stack([1 / times, np.array(x, float) / times], axis=1)
    scale = columns.max(axis=0)  # many orders of magnitude apart
    scaled = columns / scale
    parts = np.linalg.lstsq(scaled, ones)[0]
    if parts.min() < 0:  # then one part alone is the least of what is allowed
        alone = np.diag(ones @ scaled / (scaled**2).sum(axis=0))
        parts = min(alone, key=lambda way: float(np.sum((scaled @ way - 1) ** 2)))
    off = scaled @ parts - 1
    latency, per_byte = (float(part) for part in parts / scale)
    ends = {"first_bytes": x[0], "last_bytes": x[-1], "worst": float(np.abs(off).max())}
    return CostLine(**ends, latency_s=latency, s_per_byte=per_byte), float(off @ off)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One log of `python -m bench collectives`: a cell, where it ran, and its times."""

    cell: str
    ranks: int
    machine: str
    timed: tuple[Timed, ...]  # of which every result was right

    def of(self, kind: str) -> list[Timed]:
        """List the times of one collective, by size."""
        return sorted((t for t in self.timed if t.kind == kind), key=lambda t: t.bytes)


def efficiencies(step_s: float, exchange_s: float) -> tuple[float, float]:
    """Estimate weak-scaling efficiency with none and with all of the exchange hidden behind a step.

    T / (T + X) and T / max(T, X), of a step T of one rank and an all-reduce X of all gradients.
    """
    return step_s / (step_s + exchange_s), step_s / max(step_s, exchange_s)


def slowest(seconds: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Find the slowest rank's seconds of each repetition, from seconds [rank][repetition]."""
    return tuple(max(ranks) for ranks in zip(*seconds, strict=True))


def read_each(paths: Sequence[Path]) -> list[Measured]:
    """Read one log of each cell and number of ranks.

    Raises UsageError on a log that cannot be read, and on two of one cell at equally many ranks.
    """
    logs = {(m.cell, m.ranks): m for m in map(read, paths)}
    if len(logs) < len(paths):
        number = f"{len(paths)} logs of {len(logs)} cells and numbers of ranks"
        raise UsageError(f"{paths[0].parent}: {number}; leave one of each")
    return list(logs.values())


def read(path: Path) -> Measured:
    """Read a log; raises UsageError where it is none, or has not ended well."""
    try:
        events: list[dict[str, Any]] = [json.loads(line) for line in read_file(path).splitlines()]
        start = next(e for e in events if e["event"] == "start")
        cell, ranks = start["workload"]["cell"], start["config"]["world_size"]
        named = [e for e in events if e["event"] == "collective"]
        timed = [
            Timed(kind=e["kind"], bytes=e["bytes"], ranks=ranks, seconds=slowest(e["seconds"]))
            for e in named
        ]
        ended = next((e["status"] for e in events if e["event"] == "end"), "no end")
        machine = str(start["host"]["ranks"][0]["cpu"])
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a log of bench collectives") from None
    except (KeyError, StopIteration, TypeError, ValueError, IndexError):
        raise UsageError(f"{path} is no log of bench collectives; name one") from None
    if not timed or any(not math.isfinite(s) or s <= 0 for t in timed for s in t.seconds):
        raise UsageError(f"{path} holds no times; measure again")
    if ended != "ok":
        raise UsageError(f"{path} has not ended well ({ended}); measure again")
    return Measured(cell=cell, ranks=ranks, machine=machine, timed=tuple(timed))
