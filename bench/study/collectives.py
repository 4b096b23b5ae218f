"""Times and bandwidths of all-reduces by size, from logs of `python -m bench collectives`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from bench.config import UsageError
from bench.record.archive import read_file


@dataclass(frozen=True, kw_only=True)
class Timed:
    """All-reduces of one size: the seconds of each repetition on its slowest rank."""

    bytes: int
    ranks: int
    seconds: tuple[float, ...]

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Self:
        """Make a Timed from a log's event, in which `seconds` have shape [rank][repetition]."""
        seconds = tuple(max(ranks) for ranks in zip(*event["seconds"], strict=True))
        ranks = len(event["seconds"])
        return cls(bytes=event["bytes"], ranks=ranks, seconds=seconds)

    @property
    def median_s(self) -> float:
        return median(self.seconds)

    @property
    def bytes_per_s(self) -> float:
        """Algorithm bandwidth: the bytes of the buffer, divided by the median time."""
        return self.bytes / self.median_s

    @property
    def bus_bytes_per_s(self) -> float:
        """Bus bandwidth of n ranks, as in nccl-tests: 2 (n - 1) / n times `bytes_per_s`."""
        return self.bytes_per_s * 2 * (self.ranks - 1) / self.ranks


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Times from one log of `python -m bench collectives`; `cell` is its backend/transport."""

    cell: str
    ranks: int
    machine: str
    timed: tuple[Timed, ...]  # by size, of which every result was right


def read_each(paths: Sequence[Path]) -> list[Measured]:
    """Read logs of `python -m bench collectives`; no two may agree in both cell and ranks.

    Raises UsageError if two do, or if `read` refuses a log.
    """
    logs = {(m.cell, m.ranks): m for m in map(read, paths)}
    if len(logs) < len(paths):
        number = f"{len(paths)} logs of {len(logs)} cells and numbers of ranks"
        raise UsageError(f"{paths[0].parent}: {number}; leave one of each")
    return list(logs.values())


def read(path: Path) -> Measured:
    """Read one log. Raises UsageError if it is of another kind, has no times or did not end ok."""
    try:
        events: list[dict[str, Any]] = [json.loads(line) for line in read_file(path).splitlines()]
        start = next(e for e in events if e["event"] == "start")
        cell, ranks = start["workload"]["cell"], start["config"]["world_size"]
        times = (e for e in events if e["event"] == "collective" and e["kind"] == "all_reduce")
        timed = sorted(map(Timed.of_event, times), key=lambda one: one.bytes)
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
