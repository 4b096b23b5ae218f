"""Energy counters of a node and its GPUs, read at a window's edges: no thread, no sampling.

What a node counts as a whole is read by its first rank, a GPU by the rank that uses it; all outside
the clock. Formats, from their documentation: the kernel's powercap, Cray's "User Access to Compute
Node Power Data", NVML's total energy consumption.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.instrument.nvml import Nvml
from bench.record.host import MOST_INTEGER, Scope

# seconds between two edges of a window, and [before, after] of each counter
EnergyReading = tuple[float, list[list[int | None]]]


class Meter(NamedTuple):
    """One counter. A count is `joules`; after `wraps_at` counts it begins again, if it does."""

    name: str
    scope: Scope
    joules: float
    wraps_at: int | None
    read: Callable[[], int]  # raises OSError or ValueError

    def record(self) -> dict[str, Any]:
        """The counter as plain values, for the run log."""
        return {k: v for k, v in self._asdict().items() if k != "read"}


class Edge(NamedTuple):
    """All counters at one edge of a window."""

    at_s: float  # of a monotonic clock
    counts: list[int | None]  # None: could not be read


class Meters:
    """The counters that one rank reads; `absent` names the others, and why they are not read."""

    def __init__(self, meters: Sequence[Meter], absent: Sequence[str]) -> None:
        self.absent: list[str] = [*absent]
        self.meters = [meter for meter in meters if self._is_readable(meter)]

    def _is_readable(self, meter: Meter) -> bool:
        try:
            meter.read()
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            self.absent.append(f"{meter.name}: {reason}")
            return False
        return True

    def record(self) -> dict[str, Any]:
        """For the run log, in the order of the readings."""
        counters = [meter.record() for meter in self.meters]
        return {"energy_counters": counters, "energy_absent": self.absent}

    def edge(self) -> Edge:
        """Read all counters; never fails, as no run should for them."""
        return Edge(time.monotonic(), [_count(meter) for meter in self.meters])

    def since(self, begin: Edge) -> EnergyReading | None:
        """From one edge till now; None without counters."""
        if not self.meters:
            return None
        end = self.edge()
        counts = zip(begin.counts, end.counts, strict=True)
        return end.at_s - begin.at_s, [[before, after] for before, after in counts]


def _count(meter: Meter) -> int | None:
    try:
        count = meter.read()
    except (OSError, ValueError):
        return None
    return count if 0 <= count < MOST_INTEGER else None  # what a log takes


def meters_of(sysfs: Path, gpu_uuid: str | None, *, first_of_node: bool) -> Meters:
    """The counters of one rank: its GPU's, and below `sysfs` its node's where it is the first."""
    meters: list[Meter] = []
    absent: list[str] = []
    if first_of_node:
        kinds = {"class/powercap/intel-rapl:*": _rapl, "cray/pm_counters": _cray}
        for place, kind in kinds.items():
            meters_of_kind = list(kind(sysfs))
            meters += meters_of_kind
            absent += [] if meters_of_kind else [f"no {sysfs / place}"]
    if gpu_uuid is not None:
        try:
            # millijoules since its driver was loaded
            meters.append(Meter("NVML", "device", 1e-3, None, Nvml(gpu_uuid).energy_mj))
        except OSError as error:
            absent.append(f"NVML: {error}")
    return Meters(meters, absent)


def _first_number(path: Path) -> Callable[[], int]:
    """Reader of files such as '5081 J 1586853497434912 us', or of a bare number."""
    return lambda: int(path.read_text().partition(" ")[0])


def _rapl(sysfs: Path) -> Iterator[Meter]:
    """Processor packages and the memory beside them, in microjoules; not the parts of a package.

    Zones of the whole platform are kept apart: what is in them differs between machines.
    """
    for zone in sorted((sysfs / "class/powercap").glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text().strip()
            owner = zone.with_name(zone.name.rpartition(":")[0]) / "name"
            package = owner.read_text().strip() if zone.name.count(":") > 1 else ""
            wraps_at = int((zone / "max_energy_range_uj").read_text())
        except (OSError, ValueError):
            continue
        if not 0 < wraps_at < MOST_INTEGER:
            continue
        is_part = name == "dram" or (not package and name.startswith("package"))
        if is_part or not package:
            whole_name = " ".join(filter(None, ("RAPL", package, name)))
            scope: Scope = "part" if is_part else "beside"
            yield Meter(whole_name, scope, 1e-6, wraps_at, _first_number(zone / "energy_uj"))


def _cray(sysfs: Path) -> Iterator[Meter]:
    """The node in joules, its accelerators among them, and these apart; ten updates a second."""
    for path in sorted((sysfs / "cray/pm_counters").glob("*energy")):
        if re.fullmatch(r"energy|accel\d+_energy", path.name):
            scope: Scope = "node" if path.name == "energy" else "beside"
            yield Meter(f"pm_counters {path.name}", scope, 1.0, None, _first_number(path))
